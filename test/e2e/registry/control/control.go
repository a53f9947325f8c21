// Package control is how a test tells the registry's server to misbehave: the server reads Faults as JSON.
package control

import "time"

// Kind is a way in which a request goes wrong.
type Kind string

const (
	// Down breaks the connection without an answer.
	Down Kind = "down"
	// Slow answers Fault.BytesPerSecond.
	Slow Kind = "slow"
	// Status answers Fault.Status and does nothing.
	Status Kind = "status"
	// Truncated announces the whole body and breaks the connection after half of it.
	Truncated Kind = "truncated"
	// WrongDigest answers a body of the right length whose last byte is another.
	WrongDigest Kind = "wrong digest"
)

// Fault is what goes wrong. The newest that matches a request befalls it.
type Fault struct {
	Kind Kind `json:"kind"`
	// Path is a regular expression for the requests' paths, such as "^/v2/platform/.*/blobs/". Default: all.
	Path string `json:"path,omitempty"`
	// Times is how many requests it befalls, 0 for all.
	Times int `json:"times,omitempty"`
	// For is how long it lasts, 0 until everything is healed.
	For time.Duration `json:"for,omitempty"`
	// Status and RetryAfter are the answer of kind Status; RetryAfter is sent as it is.
	Status     int    `json:"status,omitempty"`
	RetryAfter string `json:"retryAfter,omitempty"`
	// BytesPerSecond is the pace of kind Slow.
	BytesPerSecond int `json:"bytesPerSecond,omitempty"`
}

// Request is one request that the registry answered, or refused to.
type Request struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	// Status is 0 where the connection was broken before an answer.
	Status int `json:"status"`
	// From is the client's address.
	From string `json:"from"`
	// Fault is what befell it.
	Fault Kind `json:"fault,omitempty"`
}
