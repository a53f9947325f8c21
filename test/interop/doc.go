// Package interop exchanges images and signatures with the programs that others use: crane and skopeo read what is made
// here and make what is read here, and what cosign signs is verified here, against a sigstore of the test's own (Fulcio,
// Rekor and a timestamp authority). test/peers builds all of them from source.
package interop
