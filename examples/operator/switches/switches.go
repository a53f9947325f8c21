// Package switches reads the switches that make a program of the example platform misbehave. It takes the entries of a ConfigMap or of a
// manifest, and returns their meaning for one program, which applies them.
package switches

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ConfigMap is the name of the ConfigMap that holds the switches of all programs in its namespace. No release contains it: an administrator
// creates it to cause trouble, and deletes it to end the trouble.
const ConfigMap = "example-switches"

// Set contains the switches of one program. A program with the zero value behaves.
type Set struct {
	// Slow is how long an operator delays the report of a version that all its operands have reached, and how long other
	// programs need from their start until they are ready.
	Slow time.Duration
	// Degraded, Unavailable and NotUpgradeable are conditions that an operator reports.
	Degraded, Unavailable, NotUpgradeable bool
	// NotReady fails the readiness probe.
	NotReady bool
	// CrashLoop ends the program with an error, now and after each start.
	CrashLoop bool
}

// Read returns the switches of one program. Keys are the names of Set's fields, in any case. A bare key applies to the operators in the
// namespace, and WORKLOAD.KEY to the pods of that workload. workload is empty for an operator. A value is true, false or a duration. The
// suffix @VERSION limits it to programs of that version.
func Read(entries map[string]string, workload, version string) (Set, error) {
	var set Set
	var errs []error
	for _, entry := range slices.Sorted(maps.Keys(entries)) {
		key := entry
		if dot := strings.LastIndexByte(entry, '.'); dot >= 0 {
			if entry[:dot] != workload {
				continue
			}
			key = entry[dot+1:]
		} else if workload != "" {
			continue
		}
		value, only, restricted := strings.Cut(entries[entry], "@")
		target, err := set.field(key)
		if err == nil && restricted && only != version {
			continue
		}
		if err == nil {
			err = target(strings.TrimSpace(value))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("switch %q: %w", entry, err))
		}
	}
	return set, errors.Join(errs...)
}

// field returns a function that sets the field of a key.
func (s *Set) field(key string) (func(string) error, error) {
	flag := func(to *bool) func(string) error {
		return func(text string) error {
			on, err := strconv.ParseBool(text)
			if err != nil {
				return fmt.Errorf("%q is neither true nor false", text)
			}
			*to = on
			return nil
		}
	}
	switch strings.ToLower(key) {
	case "slow":
		return func(text string) error {
			slow, err := time.ParseDuration(text)
			if err != nil || slow < 0 {
				return fmt.Errorf("%q is not a duration, such as 30s", text)
			}
			s.Slow = slow
			return nil
		}, nil
	case "degraded":
		return flag(&s.Degraded), nil
	case "unavailable":
		return flag(&s.Unavailable), nil
	case "notupgradeable":
		return flag(&s.NotUpgradeable), nil
	case "notready":
		return flag(&s.NotReady), nil
	case "crashloop":
		return flag(&s.CrashLoop), nil
	}
	return nil, errors.New("no such switch: use slow, degraded, unavailable, notUpgradeable, notReady or crashLoop")
}

// Merge returns the entries of a manifest, overridden by the entries of the ConfigMap.
func Merge(manifest, live map[string]string) map[string]string {
	merged := make(map[string]string, len(manifest)+len(live))
	maps.Copy(merged, manifest)
	maps.Copy(merged, live)
	return merged
}
