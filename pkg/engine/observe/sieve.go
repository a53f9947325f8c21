package observe

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
)

// Sieve returns a transport that drops events of unwanted objects from responses to the Watcher's watches before they are decoded. A
// decoder would copy a large object several times, and keep a buffer of its size until the watch ends. The transport reads the start of an
// event, which contains the object's name, and discards the rest of an unwanted event as it arrives. It passes on events that it does not
// understand, because the Watcher also drops unwanted objects itself.
func Sieve(next http.RoundTripper) http.RoundTripper { return sieve{next} }

type sieve struct{ next http.RoundTripper }

// unwanted reports whether to drop an object.
type unwanted func(namespace, name string) bool

type sieveKey struct{}

// WithSieve returns a context for a watch through Sieve that drops the events of objects for which drop returns true. drop
// may be called from any goroutine.
func WithSieve(ctx context.Context, drop func(namespace, name string) bool) context.Context {
	return context.WithValue(ctx, sieveKey{}, unwanted(drop))
}

// RoundTrip implements http.RoundTripper.
func (s sieve) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.next.RoundTrip(r)
	drop, ok := r.Context().Value(sieveKey{}).(unwanted)
	if err != nil || !ok || answer.StatusCode != http.StatusOK ||
		!strings.HasPrefix(answer.Header.Get("Content-Type"), "application/vnd.kubernetes.protobuf") {
		return answer, err
	}
	answer.Body = &sieved{ReadCloser: answer.Body, drop: drop}
	return answer, nil
}

// WrappedRoundTripper returns the next transport, for client-go.
func (s sieve) WrappedRoundTripper() http.RoundTripper { return s.next }

const (
	frameHeader = 4
	// frameHead is large enough for the kind and the names of any valid object.
	frameHead = 1024
)

// sieved is the body of a watch. It consists of frames: a length of four bytes, then an event.
type sieved struct {
	io.ReadCloser
	drop unwanted
	// buffer contains the start of a frame, and pending the part of it that has not been passed on yet.
	buffer  [frameHeader + frameHead]byte
	pending []byte
	// rest is the number of bytes of the frame after pending.
	rest int64
}

// Read implements io.Reader.
func (s *sieved) Read(p []byte) (int, error) {
	for len(s.pending) == 0 && s.rest == 0 {
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	if len(s.pending) > 0 {
		n := copy(p, s.pending)
		s.pending = s.pending[n:]
		return n, nil
	}
	n, err := s.ReadCloser.Read(p[:min(int64(len(p)), s.rest)])
	s.rest -= int64(n)
	return n, err
}

// next reads the start of the next frame, or the whole frame if it is dropped.
func (s *sieved) next() error {
	if _, err := io.ReadFull(s.ReadCloser, s.buffer[:frameHeader]); err != nil {
		return err
	}
	length := int64(binary.BigEndian.Uint32(s.buffer[:frameHeader]))
	head := s.buffer[frameHeader:][:min(length, frameHead)]
	if _, err := io.ReadFull(s.ReadCloser, head); err != nil {
		return err
	}
	rest := length - int64(len(head))
	if namespace, name, ok := eventObject(head); ok && s.drop(namespace, name) {
		_, err := io.CopyN(io.Discard, s.ReadCloser, rest)
		return err
	}
	s.pending, s.rest = s.buffer[:frameHeader+len(head)], rest
	return nil
}

// envelope is the start of an object in the protobuf encoding of Kubernetes (runtime.Unknown).
var envelope = []byte("k8s\x00")

// eventObject returns the name of an event's object from the start of the event's encoding. ok is false for events without an object, and
// for events that it does not understand.
func eventObject(event []byte) (namespace, name string, ok bool) {
	kind, whole := protobufField(event, 1) // WatchEvent.type
	if !whole || string(kind) != "ADDED" && string(kind) != "MODIFIED" && string(kind) != "DELETED" {
		return "", "", false
	}
	object, _ := protobufField(event, 2) // WatchEvent.object
	object, _ = protobufField(object, 1) // RawExtension.raw
	object, is := bytes.CutPrefix(object, envelope)
	if !is {
		return "", "", false
	}
	object, _ = protobufField(object, 2)    // Unknown.raw
	metadata, _ := protobufField(object, 1) // PartialObjectMetadata.metadata, the same for every other kind
	rawName, whole := protobufField(metadata, 1)
	if !whole || len(rawName) == 0 {
		return "", "", false
	}
	rawNamespace, whole := protobufField(metadata, 3)
	return string(rawNamespace), string(rawName), whole
}

// protobufField returns a field of bytes, up to the end of the given part of the message, and whether it is complete. It expects the fields
// in ascending order of their numbers.
func protobufField(message []byte, number uint64) (value []byte, whole bool) {
	const lengthDelimited = 2
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 || tag&7 != lengthDelimited {
			return nil, false
		}
		length, m := binary.Uvarint(message[n:])
		if m <= 0 {
			return nil, false
		}
		message = message[n+m:]
		reaches := uint64(len(message)) >= length
		if tag>>3 == number {
			if reaches {
				return message[:length], true
			}
			return message, false
		}
		if !reaches || tag>>3 > number {
			return nil, false
		}
		message = message[length:]
	}
	return nil, false
}
