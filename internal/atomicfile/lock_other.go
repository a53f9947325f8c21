//go:build !unix

package atomicfile

import (
	"errors"
	"os"
)

// These systems refuse to remove an open file.

// LockShared does nothing, because the system has no locks that end with the process.
func LockShared(*os.File) error { return nil }

// Lock does nothing, because the system has no locks that end with the process.
func Lock(*os.File) error { return nil }

// TryLock returns true, because the system has no locks that end with the process.
func TryLock(*os.File) (bool, error) { return true, nil }

func flockAlone(*os.File) error { return errors.ErrUnsupported }
