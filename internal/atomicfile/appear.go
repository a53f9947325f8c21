package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Appear calls fill to write a folder that must be new or empty. The folder appears completely or not at all.
func Appear(dir string, fill func(staged string) error) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("writing %s: %w: name an empty or new folder", dir, err)
	case len(entries) > 0:
		return fmt.Errorf("%s exists and is not empty: name an empty or new folder", dir)
	}
	staged, err := NewFolder(filepath.Dir(dir), filepath.Base(dir))
	if err != nil {
		return fmt.Errorf("writing %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, staged.Release()) }()
	if err := fill(staged.Path); err != nil {
		return err
	}
	if err := staged.Rename(dir); err != nil {
		return fmt.Errorf("writing %s: %w", dir, err)
	}
	return nil
}
