//go:build linux

package tree

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// selinux is the extended attribute with the SELinux label of a file.
const selinux = "security.selinux"

// readXAttrs returns all extended attributes of a file, a link or a folder. A file system without them has none.
func readXAttrs(path string) (map[string][]byte, error) {
	names, err := read(func(buffer []byte) (int, error) { return unix.Llistxattr(path, buffer) })
	attributes := map[string][]byte{}
	if errors.Is(err, unix.ENOTSUP) {
		return attributes, nil
	}
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		value, err := read(func(buffer []byte) (int, error) { return unix.Lgetxattr(path, name, buffer) })
		// ENODATA: another process removed the attribute meanwhile.
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return nil, err
		}
		attributes[name] = value
	}
	return attributes, nil
}

// read calls a system call that fills a buffer, with a buffer large enough. The size may grow between two calls.
func read(fill func([]byte) (int, error)) ([]byte, error) {
	for {
		size, err := fill(nil)
		if err != nil || size == 0 {
			return []byte{}, err
		}
		buffer := make([]byte, size)
		n, err := fill(buffer)
		if errors.Is(err, unix.ERANGE) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return buffer[:n], nil
	}
}

// writeXAttrs gives a file exactly these extended attributes: a new file may have inherited others from its folder.
func writeXAttrs(path string, attributes map[string][]byte) error {
	existing, err := readXAttrs(path)
	if err != nil {
		return err
	}
	for name := range existing {
		// The kernel removes no label.
		if _, ok := attributes[name]; ok || name == selinux {
			continue
		}
		if err := unix.Lremovexattr(path, name); err != nil {
			return err
		}
	}
	for name, value := range attributes {
		if string(existing[name]) == string(value) && existing[name] != nil {
			continue
		}
		if err := unix.Lsetxattr(path, name, value, 0); err != nil {
			return err
		}
	}
	return nil
}

// copyLabel copies the SELinux label, if there is one.
func copyLabel(from, to string) error {
	label, err := read(func(buffer []byte) (int, error) { return unix.Lgetxattr(from, selinux, buffer) })
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return err
	}
	return unix.Lsetxattr(to, selinux, label, 0)
}
