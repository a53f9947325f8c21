// Package integration holds tests of the whole path: the real cvo binary as a process, against a real API server, with release
// images in a registry, signatures in a store, and another process that plays the platform's operators.
package integration
