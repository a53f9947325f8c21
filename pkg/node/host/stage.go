//go:build linux

package host

import (
	"bytes"
	"encoding/json"
	"path"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host/space"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
)

// staging is a file with the staged config. Its content is a blob.
func (h *Host) staging() string { return path.Join(config.Folder, "staged.json") }

// Staged returns the config that Stage has put on disk last. It is the zero value before the first.
func (h *Host) Staged() (Config, error) {
	var staged Config
	err := h.readJSON(h.staging(), &staged)
	return staged, err
}

// Find returns the config with a name whose content is on disk: the staged or the current one. It is the zero value if neither has the name.
func (h *Host) Find(name string) (Config, error) {
	staged, err := h.Staged()
	if err != nil || staged.Name == name {
		return staged, err
	}
	s, err := h.load()
	if err != nil || s.Current.Name != name {
		return Config{}, err
	}
	return s.Current, nil
}

// Stage puts the content of a config on disk below the host's own folder, and replaces the config that was staged before. It writes nothing else to
// the host. It fails if the file systems have not enough space or inodes for the change from the host's entries to the content. An obstacle to
// this change, such as a folder in a file's place, is an error of Apply only.
func (h *Host) Stage(name string, content config.Content) error {
	return h.locked(func(s *State) error { return h.stage(s, name, content) })
}

func (h *Host) stage(s *State, name string, content config.Content) error {
	encoded, err := json.Marshal(content)
	if err != nil {
		return err
	}
	staged := Config{name, digestOf(encoded)}
	if err := h.checkSpace(s, content, uint64(len(encoded))); err != nil {
		return err
	}
	if err := h.write(h.blob(staged.Digest), staged.Digest, bytes.NewReader(encoded)); err != nil {
		return err
	}
	if err := h.writeJSON(h.staging(), staged); err != nil {
		return err
	}
	if s.Change != nil {
		return nil // the end of the change removes what is not needed
	}
	return h.collect(s)
}

// checkSpace fails if a file system has not enough space or inodes for a change to the content. encoded is the size of the content in the journal.
func (h *Host) checkSpace(s *State, content config.Content, encoded uint64) error {
	steps, to := h.stepsTo(s, content)
	needs := space.New(h.tree, h.free)
	// Staging and the journal of the change write the content, and the journal has a file for its state and one for the reserve.
	needs.Add(config.Folder, encoded, encoded, uint64(len(steps)+16)*space.Block, uint64(len(steps)+16)*space.Block)
	for _, step := range steps {
		if step.Before.Kind == tree.File {
			needs.Add(config.Folder, h.size(step.Path))
		}
		if step.After.Kind != tree.Absent {
			needs.Add(path.Dir(step.Path), uint64(len(to.data[step.After.Digest])))
		}
	}
	return needs.Check()
}

// stepsTo returns the steps of a change to a content, and its target; no steps if Begin would fail.
func (h *Host) stepsTo(s *State, content config.Content) ([]Step, target) {
	to, err := h.target(s, content)
	if err != nil {
		return nil, to
	}
	steps, _, err := h.plan(s, to)
	if err != nil {
		return nil, to
	}
	return steps, to
}

// size returns the size of a file in bytes; 0 if it cannot be opened, which is an error of Apply.
func (h *Host) size(name string) uint64 {
	f, err := h.tree.OpenFile(name)
	if err != nil {
		return 0
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return uint64(info.Size())
}
