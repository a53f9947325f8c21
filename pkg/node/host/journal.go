//go:build linux

package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/disruption"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
)

// Config identifies a config by its name and the SHA-256 of its content in hex.
type Config struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// Phase is the progress of a change.
type Phase string

// Phases of a change.
const (
	// Applying: some steps may have happened.
	Applying Phase = "Applying"
	// Applied: all steps have happened. The change waits for Confirm or Undo.
	Applied Phase = "Applied"
	// Restoring: the caller sets what the host booted with before the change. Only a change with ChangesBoot has this phase.
	Restoring Phase = "Restoring"
	// Undoing: some steps may be undone.
	Undoing Phase = "Undoing"
	// Undone: all steps are undone. The actions of the change must follow, because the services may run with the undone files.
	Undone Phase = "Undone"
)

// Change is a change that is neither confirmed nor undone.
type Change struct {
	From  Config `json:"from"`
	To    Config `json:"to"`
	Phase Phase  `json:"phase"`
	// Failure is the error that started the undo. It is empty if a caller requested the undo.
	Failure string `json:"failure,omitempty"`
	// Steps are in the order of their execution. An undo executes them in reverse.
	Steps []Step `json:"steps"`
	// Folders are the existing folders of the steps' paths at the start of the change. A step creates them again if another process has removed them.
	Folders map[string]tree.Entry `json:"folders,omitempty"`
	// Actions must follow the steps, in either direction. The caller runs them.
	Actions []disruption.Action `json:"actions,omitempty"`
	// Boot is the host's boot at the latest of these times: before the first step, after all steps, after their undo.
	Boot string `json:"boot,omitempty"`
	// ChangesBoot reports whether the change is also about what the host boots with. Preparing is true from the moment at which the caller begins to
	// set that, and Prepared is the boot in which it has. Former is what the host had booted with then, for a caller that needs it for the undo.
	// Repeats is true once the caller has begun to set it again, because a boot has not used it.
	ChangesBoot bool   `json:"changesBoot,omitempty"`
	Preparing   bool   `json:"preparing,omitempty"`
	Prepared    string `json:"prepared,omitempty"`
	Former      string `json:"former,omitempty"`
	Repeats     bool   `json:"repeats,omitempty"`
	// Acted reports whether all steps had happened, so that the caller may have run actions.
	Acted bool `json:"acted,omitempty"`
	// Ran reports whether all actions have succeeded. It stays false if one is a reboot. The guard then judges the change, and Passed reports whether it has
	// accepted it.
	Ran    bool `json:"ran,omitempty"`
	Passed bool `json:"passed,omitempty"`
	// Boots is the number of boots with the applied change that the guard has seen, of which Counted is the latest.
	Boots   int    `json:"boots,omitempty"`
	Counted string `json:"counted,omitempty"`
	// RollBack is the guard's reason to undo the change; empty if it has none.
	RollBack string `json:"rollBack,omitempty"`
	// Originals replace the originals of the state when the change is confirmed.
	Originals map[string]tree.Entry `json:"originals"`
}

// ID identifies the change in a boot.
func (c Change) ID() string { return c.To.Digest + " " + c.Boot }

// IsUndoing reports whether the undo of the change has begun.
func (c Change) IsUndoing() bool {
	return c.Phase == Restoring || c.Phase == Undoing || c.Phase == Undone
}

// IsOnTrial reports whether the actions of the change have succeeded, and the guard has not accepted the result yet.
func (c Change) IsOnTrial() bool { return c.Phase == Applied && c.Ran && !c.Passed }

// AwaitsReboot reports whether the change is applied, and the running boot has not begun with all of it.
func (c Change) AwaitsReboot(boot string) bool {
	switch {
	case c.Phase != Applied || !c.NeedsReboot():
		return false
	case c.ChangesBoot:
		return c.Prepared == "" || c.Prepared == boot // also after a boot without the preparation
	}
	return c.Boot == boot
}

// Step changes one path. Each path has one step at most, so the entry on the host shows whether the step has happened.
type Step struct {
	Path   string     `json:"path"`
	Before tree.Entry `json:"before"`
	After  tree.Entry `json:"after"`
}

// State is the content of state.json. One rename replaces it, so each transition of a change is atomic.
type State struct {
	// Current is the last confirmed config; the zero value before the first.
	Current Config `json:"current"`
	// Originals has, for each path that the current config manages, the entry before any config managed it.
	Originals map[string]tree.Entry `json:"originals"`
	// Change is neither confirmed nor undone; nil if there is none.
	Change *Change `json:"change,omitempty"`
	// RolledBack is the last config that the guard has undone; the zero value if there is none.
	RolledBack RolledBack `json:"rolledBack,omitzero"`
}

// end ends an undone change.
func (s *State) end() {
	if s.Change.RollBack != "" {
		s.RolledBack = RolledBack{s.Change.To.Name, s.Change.RollBack}
	}
	s.Change = nil
}

func (h *Host) file() string { return path.Join(config.Folder, "state.json") }

// reserve is a file whose space is freed for the writes of an undo, because the change may have filled the file system.
func (h *Host) reserve() string { return path.Join(config.Folder, "reserve") }

// blobs holds data by its SHA-256 in hex: contents of configs, and files that a config has replaced.
func (h *Host) blobs() string { return path.Join(config.Folder, "content") }

func (h *Host) blob(digest string) string { return path.Join(h.blobs(), digest) }

// prepare creates the folders of the journal. Only root may read them: replaced files may hold secrets.
func (h *Host) prepare() error { return h.makeFolders(h.blobs(), nil) }

// makeFolders creates a folder and those above it, unless they exist. former are folders that have existed before.
func (h *Host) makeFolders(name string, former map[string]tree.Entry) error {
	var missing []string
	for folder := name; folder != "/"; folder = path.Dir(folder) {
		exists, err := h.tree.IsFolder(folder)
		if err != nil {
			return err
		}
		if exists {
			break
		}
		missing = append(missing, folder)
	}
	for _, folder := range slices.Backward(missing) {
		mode := uint32(0o755)
		if strings.HasPrefix(folder, config.Folder) {
			mode = 0o700
		}
		e, ok := former[folder]
		if !ok {
			e = own(tree.Entry{Kind: tree.Folder, Mode: mode})
		}
		// Another process may create it concurrently.
		err := h.tree.Put(folder, e, nil)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func (h *Host) load() (*State, error) {
	s := &State{}
	return s, h.readJSON(h.file(), s)
}

func (h *Host) save(s *State) error { return h.writeJSON(h.file(), s) }

// readJSON reads a file of the journal into a value, and leaves the value as it is if the file does not exist.
func (h *Host) readJSON(name string, value any) error {
	data, err := h.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, value)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return nil
}

func (h *Host) writeJSON(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return h.write(name, "", bytes.NewReader(data))
}

func (h *Host) read(name string) ([]byte, error) {
	f, err := h.tree.OpenFile(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// write writes a file of the journal. An empty digest means any.
func (h *Host) write(name, digest string, data io.Reader) error {
	return h.tree.Put(name, own(tree.Entry{Kind: tree.File, Mode: 0o600, Digest: digest}), data)
}

// SaveRecord stores a value of another package under a name, until Release. Each name has one writer.
func (h *Host) SaveRecord(name string, value any) error {
	return h.writeJSON(h.recordFile(name), value)
}

// ReadRecord reads what SaveRecord has stored last under a name, and leaves the value as it is if that is nothing.
func (h *Host) ReadRecord(name string, value any) error { return h.readJSON(h.recordFile(name), value) }

func (h *Host) recordFile(name string) string {
	return path.Join(config.Folder, "record-"+name+".json")
}

// own returns the entry with this process as its owner: root in production.
func own(e tree.Entry) tree.Entry {
	e.UID, e.GID = os.Geteuid(), os.Getegid()
	return e
}

// digestOf returns the SHA-256 of data in hex.
func digestOf(data []byte) string {
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}

// record writes the journal of a change: first its content and a copy of every file that it replaces, then its steps. A crash before the
// last write leaves no change, a crash afterwards leaves one that can be continued and undone.
func (h *Host) record(s *State, change *Change, content []byte) error {
	err := h.write(h.blob(change.To.Digest), change.To.Digest, bytes.NewReader(content))
	if err == nil {
		err = h.backUp(s, change)
	}
	if err == nil {
		// An undo writes the state twice, with one more error text.
		err = h.write(h.reserve(), "", bytes.NewReader(make([]byte, (len(change.Steps)+16)*4096)))
	}
	if err != nil {
		return errors.Join(err, h.collect(s))
	}
	s.Change = change
	if err := h.save(s); err != nil {
		// The error may have occurred after the rename, so the journal may contain the change.
		return errors.Join(err, h.undo(s, err.Error()))
	}
	return nil
}

// backUp copies the files that the change replaces, and the new originals. It also copies an original that this change does not replace,
// because the host may lose it before the next change.
func (h *Host) backUp(s *State, change *Change) error {
	entries := map[string]tree.Entry{}
	for name, original := range change.Originals {
		if _, ok := s.Originals[name]; !ok {
			entries[name] = original
		}
	}
	for _, step := range change.Steps {
		entries[step.Path] = step.Before
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if e := entries[name]; e.Kind == tree.File {
			if err := h.copyFile(name, e.Digest); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *Host) copyFile(name, digest string) error {
	f, err := h.tree.OpenFile(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return h.write(h.blob(digest), digest, f)
}

// formerFile is a file that a change has removed or replaced, for a process that needs it before the change ends.
func (h *Host) formerFile() string { return path.Join(config.Folder, "former") }

// former copies the executable file that the change has removed or replaced, and returns the path of the copy. found is false if there was none.
func (h *Host) former(change Change, name string) (file string, found bool, err error) {
	i := slices.IndexFunc(change.Steps, func(s Step) bool { return s.Path == name && s.Before.IsProgram() })
	if i < 0 {
		return "", false, nil
	}
	digest := change.Steps[i].Before.Digest
	data, err := h.data(digest, target{})
	if err != nil {
		return "", false, err
	}
	defer data.Close()
	err = h.tree.Put(h.formerFile(), own(tree.Entry{Kind: tree.File, Mode: 0o700, Digest: digest}), data)
	return h.formerFile(), err == nil, err
}

// data returns the data of a file, from the target or from the journal.
func (h *Host) data(digest string, of target) (io.ReadCloser, error) {
	if data, ok := of.data[digest]; ok {
		return io.NopCloser(bytes.NewReader(data)), nil
	}
	return h.tree.OpenFile(h.blob(digest))
}

// collect disables the guard, and removes everything from the journal that the state does not need. No change is pending.
func (h *Host) collect(s *State) error {
	if err := h.disableGuard(); err != nil {
		return err
	}
	for _, name := range []string{h.reserve(), h.formerFile()} {
		if err := h.tree.Remove(name); err != nil {
			return err
		}
	}
	needed := map[string]bool{s.Current.Digest: true}
	if staged, err := h.Staged(); err == nil {
		needed[staged.Digest] = true
	}
	for _, original := range s.Originals {
		needed[original.Digest] = true
	}
	return h.keep(h.blobs(), needed)
}

// keep removes all other files of a folder.
func (h *Host) keep(name string, needed map[string]bool) error {
	folder, err := h.tree.OpenFolder(name)
	if err != nil {
		return err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, file := range names {
		if !needed[file] {
			err = errors.Join(err, h.tree.Remove(path.Join(name, file)))
		}
	}
	return err
}
