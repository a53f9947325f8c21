//go:build linux

package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/disruption"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
)

// Begin plans the change from the host's current config to this one, and records it in the journal. It does not write to the host; Resume does.
// The journal has the actions, so that the caller can run them after the steps, and again after a crash or an undo. If a path cannot be replaced,
// the error contains the path and the errno.
//
// Paths that only the current config manages get their originals back. The change also replaces a file that differs from both configs, and Undo
// restores it. Callers for whom such drift blocks a change call Verify first.
func (h *Host) Begin(name string, content config.Content, actions ...disruption.Action) error {
	return h.locked(func(s *State) error {
		if err := h.begin(s, name, content, actions); err != nil {
			return fmt.Errorf("applying %s: %w", name, err)
		}
		return nil
	})
}

func (h *Host) begin(s *State, name string, content config.Content, actions []disruption.Action) error {
	if s.Change != nil {
		return fmt.Errorf("%w: to %s", ErrPending, s.Change.To.Name)
	}
	to, err := h.target(s, content)
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(content)
	if err != nil {
		return err
	}
	steps, originals, err := h.plan(s, to)
	if err != nil {
		return err
	}
	folders, err := h.existing(steps)
	if err != nil {
		return err
	}
	boot, err := h.Boot()
	if err != nil {
		return err
	}
	from, err := h.Content(s.Current)
	if err != nil {
		return err
	}
	change := &Change{
		From: s.Current, To: Config{name, digestOf(encoded)}, Phase: Applying, Steps: steps, Folders: folders, Actions: actions, Boot: boot,
		ChangesBoot: !from.BootsLike(content), Originals: originals,
	}
	return h.record(s, change, encoded)
}

// Resume executes the steps of the pending change, also of one that an ended process has left. On success the change waits for Confirm. On failure
// Resume undoes the change and returns an error with path and errno; if the undo fails too, the error is ErrNotUndone as well and the change stays
// pending. Resume does nothing if no change is pending, or if the change is applied. It returns ErrUndoing if the undo of the change has begun.
func (h *Host) Resume() error {
	return h.locked(func(s *State) error {
		switch {
		case s.Change == nil || s.Change.Phase == Applied:
			return nil
		case s.Change.IsUndoing():
			return fmt.Errorf("resuming the change to %s: %w", s.Change.To.Name, ErrUndoing)
		}
		content, err := h.Content(s.Change.To)
		if err != nil {
			return err
		}
		to, err := h.targetOf(content)
		if err != nil {
			return err
		}
		return h.run(s, s.Change, to)
	})
}

// run executes the steps of a change that is in the journal.
func (h *Host) run(s *State, change *Change, to target) error {
	err := h.steps(change, to)
	if err == nil {
		change.Boot, err = h.Boot()
	}
	if err == nil {
		change.Phase, change.Acted = Applied, true
		err = h.save(s)
	}
	if err != nil {
		err = fmt.Errorf("applying %s: %w", change.To.Name, err)
		return errors.Join(err, h.undo(s, err.Error()))
	}
	return nil
}

func (h *Host) steps(change *Change, to target) error {
	to.former = change.Folders
	for _, step := range change.Steps {
		if err := h.settle(step.Path, step.Before, step.After, to); err != nil {
			return err
		}
	}
	return nil
}

// Undo restores the host to its state before the pending change. It does nothing if no change is pending. It undoes every step that it can.
// If one fails, the error is ErrNotUndone and the change stays pending. It also stays pending, with phase Undone, if its actions must follow. Then
// the caller runs them and calls EndUndo; after a reboot, Undo does that itself.
func (h *Host) Undo() error {
	return h.locked(func(s *State) error {
		if s.Change == nil {
			return h.collect(s)
		}
		return h.undo(s, s.Change.Failure)
	})
}

func (h *Host) undo(s *State, failure string) error {
	change := s.Change
	var marked, err error
	if change.Phase != Undone {
		change.Phase, change.Failure = Undoing, failure
		// The undo does not need this write to succeed: the journal has the steps without it.
		marked = errors.Join(h.tree.Remove(h.reserve()), h.save(s))
		for _, step := range slices.Backward(change.Steps) {
			err = errors.Join(err, h.settle(step.Path, step.After, step.Before, target{former: change.Folders}))
		}
	}
	boot, bootErr := h.Boot()
	if err = errors.Join(err, bootErr); err == nil {
		if change.needsActions(boot) {
			change.Phase, change.Boot = Undone, boot
		} else {
			s.end()
		}
		err = h.save(s)
	}
	if err != nil {
		return fmt.Errorf("undoing the change to %s: %w: %w", change.To.Name, ErrNotUndone, errors.Join(err, marked))
	}
	if s.Change != nil {
		return nil
	}
	return h.collect(s)
}

// Act calls run with the pending change if it is in this phase, so that run can make the actions of the change. One process at a time does so: Act
// returns ErrBusy if another one does. Actions take long, so other methods may change the host meanwhile.
func (h *Host) Act(phase Phase, run func(Change) error) error {
	return h.alone(h.blobs(), func() error { // locked uses the folder above
		change, pending, err := h.Pending()
		if err != nil || !pending || change.Phase != phase {
			return err
		}
		return run(change)
	})
}

// SetPreparing records that the caller begins to set what the host boots with after the applied change. former is Change.Former.
func (h *Host) SetPreparing(former string) error {
	return h.prepareBoot(func(c *Change) { c.Preparing, c.Former = true, former })
}

// SetRepeating records that the caller begins to set that again, because a boot has not used it.
func (h *Host) SetRepeating() error {
	return h.prepareBoot(func(c *Change) { c.Prepared, c.Repeats = "", true })
}

// SetPrepared records that the caller has set that in this boot.
func (h *Host) SetPrepared(boot string) error {
	return h.prepareBoot(func(c *Change) { c.Prepared = boot })
}

func (h *Host) prepareBoot(set func(*Change)) error {
	return h.locked(func(s *State) error {
		if s.Change == nil || s.Change.Phase != Applied {
			return fmt.Errorf("preparing the boot: %w", ErrNotApplied)
		}
		set(s.Change)
		return h.save(s)
	})
}

// SetRan records that the actions of the applied change have succeeded, none of which is a reboot. The guard must accept the change then.
func (h *Host) SetRan() error {
	return h.locked(func(s *State) error {
		if s.Change == nil || s.Change.Phase != Applied {
			return fmt.Errorf("running the actions: %w", ErrNotApplied)
		}
		s.Change.Ran = true
		return h.save(s)
	})
}

// BeginRestoring begins the undo of an applied change before the caller sets what the host booted with before. Otherwise another process could confirm
// the change meanwhile. It does nothing if another change is pending, or if the undo has begun. reason is that of RollBack; empty for Undo.
func (h *Host) BeginRestoring(change Change, reason string) error {
	return h.locked(func(s *State) error {
		if s.Change == nil || s.Change.ID() != change.ID() || s.Change.Phase != Applied {
			return nil
		}
		s.Change.Phase, s.Change.RollBack, s.Change.Failure = Restoring, reason, reason
		return h.save(s)
	})
}

// EndUndo ends an undone change after its actions. It does nothing if no change is pending.
func (h *Host) EndUndo() error {
	return h.locked(func(s *State) error {
		if s.Change != nil && s.Change.Phase != Undone {
			return fmt.Errorf("ending the undo of the change to %s: %w", s.Change.To.Name, ErrNotUndone)
		}
		if s.Change != nil {
			s.end()
			if err := h.save(s); err != nil {
				return err
			}
		}
		return h.collect(s)
	})
}

// settle changes a path from one state of its step to the other, unless the entry on the host already has that state. If the entry has
// neither state, another process has changed it: settle still replaces a file or a link, but does not remove an entry of another kind.
func (h *Host) settle(name string, from, to tree.Entry, of target) error {
	found, err := h.tree.Read(name)
	if err != nil {
		return err
	}
	switch {
	case to.Matches(found), to.Kind == tree.Absent && found.Kind != from.Kind:
		return h.tree.Finish(name)
	case found.Kind == from.Kind && (from.Kind == tree.Folder || to.Kind == tree.Folder):
		// A rename does not replace a folder by a file, nor a file by a folder.
		err := h.tree.Remove(name)
		if to.Kind == tree.Absent && errors.Is(err, unix.ENOTEMPTY) {
			// Another process keeps files in a folder that a change has created.
			return nil
		}
		if err != nil {
			return err
		}
	}
	if to.Kind != tree.Absent { // another process may have removed the folder, for example with its package
		if err := h.makeFolders(path.Dir(name), of.former); err != nil {
			return err
		}
	}
	if to.Kind != tree.File {
		return h.tree.Put(name, to, nil)
	}
	data, err := h.data(to.Digest, of)
	if err != nil {
		return err
	}
	defer data.Close()
	return h.tree.Put(name, to, data)
}

// Confirm makes the applied change to the named config current. It does nothing if that config is current and no change is pending. It
// returns ErrNotApplied if there is no such change, or if it is not completely applied.
func (h *Host) Confirm(name string) error {
	return h.locked(func(s *State) error {
		change := s.Change
		switch {
		case change == nil && s.Current.Name == name && name != "":
			return h.collect(s)
		case change == nil || change.To.Name != name || change.Phase != Applied:
			return fmt.Errorf("confirming %s: %w", name, ErrNotApplied)
		}
		next := &State{Current: change.To, Originals: change.Originals}
		if err := h.save(next); err != nil {
			return fmt.Errorf("confirming %s: %w", name, err)
		}
		return h.collect(next)
	})
}
