// Package integration has end-to-end tests of the real cvo binary. It runs as a process against a real API server, with release images in a
// registry and signatures in a store. Another process plays the platform's operators.
package integration
