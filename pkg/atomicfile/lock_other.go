//go:build !unix

package atomicfile

import (
	"errors"
	"os"
)

// Systems without locks of this kind refuse to remove a file that is open.

// LockShared is for systems with locks that end with the process.
func LockShared(*os.File) error { return nil }

// Lock is for systems with locks that end with the process.
func Lock(*os.File) error { return nil }

// TryLock is for systems with locks that end with the process.
func TryLock(*os.File) (bool, error) { return true, nil }

func flockAlone(*os.File) error { return errors.ErrUnsupported }
