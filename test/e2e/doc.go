// Package e2e has tests on a real kind cluster. Its nodes run pods and pull their images from a registry with TLS and a password. `make
// e2e` runs the tests; otherwise they are skipped with a message.
package e2e
