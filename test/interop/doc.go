// Package interop exchanges images and signatures with other programs. crane and skopeo read our images, and we read theirs. We also verify
// signatures of cosign against the test's own sigstore (Fulcio, Rekor and a timestamp authority). test/peers builds all of these programs
// from source.
package interop
