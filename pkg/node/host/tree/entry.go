//go:build linux

package tree

import (
	"bytes"
	"maps"
)

// Kind is the type of an entry.
type Kind string

// Kinds of entries.
const (
	// Absent means that the path has no entry.
	Absent Kind = "absent"
	File   Kind = "file"
	Link   Kind = "link"
	Folder Kind = "folder"
	// Other is a device, a pipe or a socket. A tree never writes or replaces one.
	Other Kind = "other"
)

// Entry is the state of one path, without the data of a file.
type Entry struct {
	Kind Kind `json:"kind"`
	// Mode has the twelve mode bits of chmod(2). It is zero for a link.
	Mode uint32 `json:"mode,omitempty"`
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	// Target is the target of a link.
	Target string `json:"target,omitempty"`
	// Digest is the SHA-256 of a file's data in hex.
	Digest string `json:"digest,omitempty"`
	// XAttrs are the extended attributes. Nil means any. Read returns all of them, and never nil for an existing entry.
	XAttrs map[string][]byte `json:"xattrs"`
}

// IsProgram reports whether the entry is a file that its owner may execute.
func (e Entry) IsProgram() bool { return e.Kind == File && e.Mode&0o100 != 0 }

// Matches reports whether the found entry has the state of e. An existing folder always matches a folder.
func (e Entry) Matches(found Entry) bool {
	if e.Kind != found.Kind {
		return false
	}
	if e.Kind == Absent || e.Kind == Folder {
		return true
	}
	return e.Mode == found.Mode && e.UID == found.UID && e.GID == found.GID && e.Target == found.Target && e.Digest == found.Digest &&
		(e.XAttrs == nil || maps.EqualFunc(e.XAttrs, found.XAttrs, bytes.Equal))
}
