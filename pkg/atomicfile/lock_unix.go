//go:build unix

package atomicfile

import (
	"errors"
	"os"
	"syscall"
)

// Locks end with the file's closing, and with the process however it ends. A file system without locks is one that no two
// processes should share: there they are had for the asking.

// LockShared waits for a lock that others may have, too.
func LockShared(f *os.File) error { return unlessUnsupported(flock(f, syscall.LOCK_SH)) }

// Lock waits for a lock that nobody else has.
func Lock(f *os.File) error { return unlessUnsupported(flock(f, syscall.LOCK_EX)) }

// TryLock reports false if somebody else holds a lock.
func TryLock(f *os.File) (bool, error) {
	err := flockAlone(f)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	err = unlessUnsupported(err)
	return err == nil, err
}

func flockAlone(f *os.File) error { return flock(f, syscall.LOCK_EX|syscall.LOCK_NB) }

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func unlessUnsupported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.ENOLCK) {
		return nil
	}
	return err
}
