// Package updategraph knows which releases a release can be updated to: it asks an update service for its graph, reads
// the answer under limits, and returns the updates of one version, recommended and conditional. Whether a conditional
// update's risks apply to a cluster is left to package risk, and what becomes of it to the caller.
package updategraph
