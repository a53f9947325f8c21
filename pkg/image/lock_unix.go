//go:build unix

package image

import (
	"errors"
	"os"
	"syscall"
)

// Locks end with the file's closing, and with the process however it ends.

func lockShared(f *os.File) error { return flock(f, syscall.LOCK_SH) }
func lockAlone(f *os.File) error  { return flock(f, syscall.LOCK_EX) }

// tryLock reports false if somebody else holds a lock.
func tryLock(f *os.File) (bool, error) {
	err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		switch {
		case errors.Is(err, syscall.EINTR):
		// A file system without locks is one that no two processes should share.
		case errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ENOLCK):
			return nil
		default:
			return err
		}
	}
}
