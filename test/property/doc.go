// Package property tests the apply engine against a model, with random pairs of releases and random edits by other writers on a real API
// server. The expected objects are derived only from manifests and edits, by rules that this package states independently. It uses nothing
// from the packages under test except the engine itself.
//
// The package contains only tests. A seed determines a history. A failing seed prints its history, shortened as long as it still fails, and
// the command that runs it again.
package property
