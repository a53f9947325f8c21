// Command mtimes sets the modification times of the committed files and folders below the working folder, which must be in a clone.
// Each time follows from the object id in git, so it changes with the content. Go's test cache compares sizes and modification times of the
// files that a test has read. A fresh clone then reuses the results of an earlier one in the same folder. Changed files keep their times,
// and so do symbolic links.
package main

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if err := set("."); err != nil {
		fmt.Fprintln(os.Stderr, "setting modification times:", err)
		os.Exit(1)
	}
}

func set(root string) error {
	entries, err := lines(root, "ls-tree", "-rtz", "HEAD")
	if err != nil {
		return err
	}
	names, err := lines(root, "diff", "--name-only", "--relative", "--no-renames", "-z", "HEAD")
	if err != nil {
		return err
	}
	changed := map[string]bool{}
	for _, name := range names {
		for ; name != "."; name = filepath.Dir(name) {
			changed[name] = true
		}
	}
	for _, entry := range entries {
		attributes, name, _ := strings.Cut(entry, "\t")
		fields := strings.Fields(attributes) // mode, type, object id
		if len(fields) != 3 {
			return fmt.Errorf("git ls-tree prints %q", entry)
		}
		if link := fields[0] == "120000"; link || changed[name] { // the target of a link has a time of its own
			continue
		}
		at, err := timeOf(fields[2])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.Chtimes(filepath.Join(root, name), at, at); err != nil && !errors.Is(err, fs.ErrNotExist) { // a sparse clone lacks files
			return err
		}
	}
	return nil
}

// timeOf returns a time between 1970 and 2007 from the first 60 bits of an object id.
func timeOf(id string) (time.Time, error) {
	sum, err := hex.DecodeString(id)
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(sum)>>4)), nil
}

func lines(root string, args ...string) ([]string, error) {
	git := exec.Command("git", args...)
	git.Dir, git.Stderr = root, os.Stderr
	out, err := git.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
}
