// Package control defines the faults that a test injects into the registry server, which reads a Fault as JSON.
package control

import "time"

// Kind is a kind of fault.
type Kind string

const (
	// Down breaks the connection without a response.
	Down Kind = "down"
	// Slow responds at Fault.BytesPerSecond.
	Slow Kind = "slow"
	// Status responds with Fault.Status and does nothing else.
	Status Kind = "status"
	// Truncated announces the whole body and breaks the connection after half of it.
	Truncated Kind = "truncated"
	// WrongDigest responds with a body of the right length whose last byte is wrong.
	WrongDigest Kind = "wrong digest"
)

// Fault is a simulated fault. The newest fault that matches a request applies.
type Fault struct {
	Kind Kind `json:"kind"`
	// Path is a regular expression for request paths, such as "^/v2/platform/.*/blobs/"; default all.
	Path string `json:"path,omitempty"`
	// Times is the number of affected requests; 0 for all.
	Times int `json:"times,omitempty"`
	// For is the duration of the fault; 0 until Heal.
	For time.Duration `json:"for,omitempty"`
	// Status and RetryAfter are the response of kind Status. RetryAfter is sent unchanged.
	Status     int    `json:"status,omitempty"`
	RetryAfter string `json:"retryAfter,omitempty"`
	// BytesPerSecond is the rate of kind Slow.
	BytesPerSecond int `json:"bytesPerSecond,omitempty"`
}

// Request is a request that the registry answered or rejected.
type Request struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	// Status is 0 if the connection was broken before a response.
	Status int `json:"status"`
	// From is the client's address.
	From string `json:"from"`
	// Fault is the fault that affected the request.
	Fault Kind `json:"fault,omitempty"`
}
