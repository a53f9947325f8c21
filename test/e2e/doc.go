// Package e2e holds tests on a real cluster: nodes made by kind that run pods, whose images they pull from a registry
// with TLS and a password. `make e2e` runs them; anywhere else they say so and do nothing.
package e2e
