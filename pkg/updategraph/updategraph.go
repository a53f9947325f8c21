// Package updategraph knows which releases a release can be updated to: it asks an update service for its graph, reads
// the answer under limits, and returns the updates of one version, recommended and conditional. Whether a conditional
// update's risks apply to a cluster is left to package risk, and what becomes of it to the caller.
package updategraph

import (
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
)

// Graph is what an update service knows of releases and of the ways between them.
type Graph struct {
	Nodes []Node `json:"nodes"`
	// Edges are updates that are recommended to every cluster: from and to, as indices of Nodes.
	Edges []IndexEdge `json:"edges"`
	// ConditionalEdges are updates that are recommended unless one of their risks applies.
	ConditionalEdges []ConditionalEdges `json:"conditionalEdges,omitempty"`
}

// Node is a release.
type Node struct {
	Version string `json:"version"`
	// Image is its pullspec.
	Image    string            `json:"payload"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Keys of a node's metadata.
const (
	metadataURL          = "url"
	metadataChannels     = "io.openshift.upgrades.graph.release.channels"
	metadataArchitecture = "release.openshift.io/architecture"
)

// IndexEdge leads from one node to another; on the wire it is a list of two numbers.
type IndexEdge struct{ From, To int }

// ConditionalEdges are updates that have the same risks.
type ConditionalEdges struct {
	Edges []Edge                           `json:"edges"`
	Risks []configv1.ConditionalUpdateRisk `json:"risks"`
}

// Edge leads from one version to another.
type Edge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Updates are the updates of one version.
type Updates struct {
	// Current is what the graph tells of the version itself.
	Current configv1.Release
	// Available are recommended to every cluster, Conditional unless one of their risks applies; the highest version
	// comes first. No image is in both.
	Available   []configv1.Release
	Conditional []configv1.ConditionalUpdate
	// LeftOut tells which updates of the graph are not among them, and why, sorted.
	LeftOut []string
}

// Reasons of an Error are those of condition RetrievedUpdates.
const (
	// ReasonInvalidRequest: the question cannot be asked.
	ReasonInvalidRequest = "InvalidRequest"
	// ReasonRemoteFailed: no answer came.
	ReasonRemoteFailed = "RemoteFailed"
	// ReasonResponseFailed: the answer is a refusal, or broke off.
	ReasonResponseFailed = "ResponseFailed"
	// ReasonResponseInvalid: the answer is no graph.
	ReasonResponseInvalid = "ResponseInvalid"
	// ReasonVersionNotFound: the version is not in the graph.
	ReasonVersionNotFound = "VersionNotFound"
	// ReasonUnknown is for all other errors.
	ReasonUnknown = "Unknown"
)

// Error tells why it is not known which updates there are.
type Error struct {
	Reason string
	Err    error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap is for errors.Is.
func (e *Error) Unwrap() error { return e.Err }

func invalid(format string, args ...any) error {
	return &Error{Reason: ReasonResponseInvalid, Err: fmt.Errorf(format, args...)}
}
