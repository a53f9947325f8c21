// Package graph reads the updates of a release from an update service. It requests the service's graph, parses the response within limits,
// and returns the recommended and conditional updates of one version. Package risk decides whether the risks of a conditional update apply
// to a cluster. The caller decides how to use the updates.
package graph

import (
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
)

// Graph is an update service's graph of releases and updates.
type Graph struct {
	Nodes []Node `json:"nodes"`
	// Edges contains the updates that are recommended to every cluster, with indexes of Nodes.
	Edges []IndexEdge `json:"edges"`
	// ConditionalEdges contains the updates that are recommended unless one of their risks applies.
	ConditionalEdges []ConditionalEdges `json:"conditionalEdges,omitempty"`
}

// Node is a release.
type Node struct {
	Version string `json:"version"`
	// Image is the release's pullspec.
	Image    string            `json:"payload"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Keys in a node's metadata.
const (
	metadataURL          = "url"
	metadataChannels     = "io.openshift.upgrades.graph.release.channels"
	metadataArchitecture = "release.openshift.io/architecture"
)

// IndexEdge is an update from one node to another. Its JSON is a list of two numbers.
type IndexEdge struct{ From, To int }

// ConditionalEdges contains updates with the same risks.
type ConditionalEdges struct {
	Edges []Edge                           `json:"edges"`
	Risks []configv1.ConditionalUpdateRisk `json:"risks"`
}

// Edge is an update from one version to another.
type Edge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Updates contains the updates of one version.
type Updates struct {
	// Current is the graph's information about the version itself.
	Current configv1.Release
	// Available contains the updates that are recommended to every cluster. Conditional contains those that are recommended unless one of
	// their risks applies. Both are sorted by version, highest first. No image is in both.
	Available   []configv1.Release
	Conditional []configv1.ConditionalUpdate
	// LeftOut contains the omitted updates of the graph with the reasons, sorted.
	LeftOut []string
}

// Reasons for the RetrievedUpdates condition if it is False.
const (
	// A channel is set, but no update service is known. Set spec.upstream.
	ReasonNoUpstream = "NoUpstream"
	// The URL of the service is invalid. It has the form https://HOST/PATH.
	ReasonInvalidURI = "InvalidURI"
	// The field spec.clusterID is not a UUID of version 4. Correct or remove it.
	ReasonInvalidID = "InvalidID"
	// No channel is set. Set spec.channel; leave it empty if the cluster needs no service.
	ReasonNoChannel = "NoChannel"
	// The running release has no version. Such a release has no updates.
	ReasonNoCurrentVersion = "NoCurrentVersion"
	// The version of the running release is not a semantic version. Such a release has no updates.
	ReasonInvalidCurrentVersion = "InvalidCurrentVersion"
	// ReasonInvalidRequest means that the query is invalid; see the message.
	ReasonInvalidRequest = "InvalidRequest"
	// ReasonRemoteFailed means that there was no response. Look at the message, the proxy and the certificates.
	ReasonRemoteFailed = "RemoteFailed"
	// ReasonResponseFailed means that the response has an error status or was interrupted. Look at the message, and ask the administrator of the
	// service.
	ReasonResponseFailed = "ResponseFailed"
	// ReasonResponseInvalid means that the response is not a graph. Ask the administrator of the service.
	ReasonResponseInvalid = "ResponseInvalid"
	// ReasonVersionNotFound means that the graph does not contain the version. Choose another channel.
	ReasonVersionNotFound = "VersionNotFound"
	// ReasonUnknown is the reason for all other errors; see the message.
	ReasonUnknown = "Unknown"
)

// Error is the reason why the updates are unknown.
type Error struct {
	Reason string
	Err    error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap supports errors.Is.
func (e *Error) Unwrap() error { return e.Err }

func invalid(format string, args ...any) error {
	return &Error{Reason: ReasonResponseInvalid, Err: fmt.Errorf(format, args...)}
}
