//go:build linux

package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
	"github.com/cluster-version/cvo/pkg/node/host/unitfile"
)

// Drift is a path whose entry on the host differs from the expected content.
type Drift struct {
	Path string
	// Found describes the difference, such as "mode 0600 instead of 0644".
	Found string
}

// Verify compares the host with a Content and returns the differences, sorted by path: bytes and mode of files and units, and the links of
// masks and of enabled units. It ignores owners, extended attributes and times, as the original daemon does. It neither locks nor writes.
func (h *Host) Verify(content config.Content) ([]Drift, error) {
	to, err := h.targetOf(content)
	if err != nil {
		return nil, err
	}
	var drifts []Drift
	if err := h.addLinks(to, content); errors.Is(err, fs.ErrNotExist) {
		drifts = append(drifts, Drift{unitfile.Folder, err.Error()})
	} else if err != nil {
		return nil, err
	}
	for name, want := range to.entries {
		found, err := h.tree.Read(name)
		if err != nil {
			return nil, err
		}
		text := differs(want, found)
		if to.disabled[name] {
			text = "enables a unit that must be disabled"
		}
		if text != "" {
			drifts = append(drifts, Drift{name, text})
		}
	}
	sorted.By(drifts, func(a, b Drift) int { return cmp.Compare(a.Path, b.Path) })
	return drifts, nil
}

// Without returns a content without the files, the units and the keys that differ on the host. It is empty if a difference is none of these.
func Without(content config.Content, drifts []Drift) config.Content {
	for _, d := range drifts {
		before := len(content.Files) + len(content.Units)
		content.Files = slices.DeleteFunc(slices.Clone(content.Files), func(f config.File) bool { return f.Path == d.Path })
		content.Units = slices.DeleteFunc(slices.Clone(content.Units), func(u config.Unit) bool { return unitfile.Concerns(d.Path, u.Name) })
		switch {
		case len(content.Files)+len(content.Units) < before:
		case strings.HasSuffix(d.Path, keysFile):
			content.SSHKeys = nil
		default:
			return config.Content{}
		}
	}
	return content
}

// Watch watches the paths that the current config manages, see tree.Watch. Links that enable a disabled unit or mask an unmasked one are not among them
// before they exist.
func (h *Host) Watch(s State) (changed <-chan struct{}, stop func(), err error) {
	return h.tree.Watch(slices.Collect(maps.Keys(s.Originals)))
}

// differs describes how the found entry differs from the expected one; empty if it does not.
func differs(want, found tree.Entry) string {
	switch {
	case want.Kind == tree.Absent:
		if isMask(found) {
			return "masked"
		}
	case found.Kind == tree.Absent:
		return "missing"
	case found.Kind == tree.Other:
		return "a device, a pipe or a socket"
	case want.Kind != found.Kind:
		return fmt.Sprintf("a %s instead of a %s", found.Kind, want.Kind)
	case want.Target != found.Target:
		return fmt.Sprintf("a link to %s instead of %s", found.Target, want.Target)
	case want.Digest != found.Digest:
		return "different data"
	case want.Mode != found.Mode:
		return fmt.Sprintf("mode %04o instead of %04o", found.Mode, want.Mode)
	}
	return ""
}
