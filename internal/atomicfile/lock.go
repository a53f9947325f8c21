package atomicfile

import (
	"errors"
	"os"
	"syscall"
)

// A lock ends when the file is closed, or when the process ends in any way. On a file system without locks, which
// processes should not share, locking always succeeds.

// LockShared waits for a shared lock on an open file.
func LockShared(f *os.File) error { return unlessUnsupported(flock(f, syscall.LOCK_SH)) }

// Lock waits for an exclusive lock on an open file.
func Lock(f *os.File) error { return unlessUnsupported(flock(f, syscall.LOCK_EX)) }

// TryLock tries to get an exclusive lock. It returns false if another process holds a lock.
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
