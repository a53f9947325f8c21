//go:build unix

package mirror

import (
	"errors"
	"os"
	"syscall"
)

// lockFolder keeps other processes out of a folder until it is unlocked, or until this process ends, however it does.
func lockFolder(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, errors.Join(errors.New("another process is writing to it: wait for its end"), f.Close())
	case errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ENOLCK):
		// A file system without locks is one that no two processes should share.
	case err != nil:
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
