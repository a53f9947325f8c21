package env

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// seed fills etcd's data folder with the data of a control plane that has started before. An API server with empty data creates some
// 200 objects before it is ready: namespaces, RBAC roles, flow schemas. That is half of the time of a start. The data stays in the user's
// cache folder. The first caller creates it, and callers in other processes wait. seed returns the folder of the data.
func seed(bin, data string) (kept string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	key, err := seedKey(bin)
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "cvo-test")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	kept = filepath.Join(cache, "etcd-"+key)
	_, err = os.Stat(kept)
	if errors.Is(err, fs.ErrNotExist) {
		err = createSeed(bin, kept)
	}
	if err != nil {
		return "", err
	}
	return kept, os.CopyFS(data, os.DirFS(kept))
}

// seedKey identifies the binaries and their settings.
func seedKey(bin string) (string, error) {
	key := fnv.New64a()
	_, _ = fmt.Fprintln(key, os.Getenv(GatesEnv), flags)
	for _, name := range []string{etcdName, apiServerName} {
		info, err := os.Stat(filepath.Join(bin, name))
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintln(key, name, info.Size(), info.ModTime().UnixNano())
	}
	return fmt.Sprintf("%016x", key.Sum64()), nil
}

// createSeed starts a control plane with empty data, stops it, and moves its data to the folder kept.
func createSeed(bin, kept string) error {
	dir, err := os.MkdirTemp("", "cvo-seed-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	e := &Env{Dir: dir, bin: bin}
	err = e.start(Options{Dir: dir, Audit: AuditNone})
	if err != nil {
		err = fmt.Errorf("starting a control plane with empty data: %w%s", err, e.logTails())
	}
	if err := errors.Join(err, e.Stop()); err != nil {
		return err
	}
	logs, err := filepath.Glob(filepath.Join(e.etcdData(), "member", "wal", "*.wal"))
	if err != nil {
		return err
	}
	for _, log := range logs {
		if err := trim(log); err != nil {
			return err
		}
	}
	// A copy in the cache's file system becomes complete by one rename.
	unfinished := kept + ".new"
	if err := errors.Join(os.RemoveAll(unfinished), os.CopyFS(unfinished, os.DirFS(e.etcdData()))); err != nil {
		return err
	}
	return os.Rename(unfinished, kept)
}

// trim cuts the space that etcd has reserved at the end of a log: 62 of 64 MB. A page of zeros stays, because a record may end with zeros.
func trim(log string) error {
	data, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	const page = 4096
	used := len(bytes.TrimRight(data, "\x00"))
	return os.Truncate(log, int64(min(len(data), (used/page+2)*page)))
}
