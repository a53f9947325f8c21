// Package unitfile reads what the files of systemd's units say about how to enable the unit.
package unitfile

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cluster-version/cvo/pkg/node/config"
)

// Folder is the folder of an administrator's units, which has priority.
const Folder = "/etc/systemd/system"

// Folders returns the folders of a host's units, in the order of their priority (systemd.unit(5)).
func Folders() []string {
	return []string{Folder, "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}
}

// dependencies are the folders of the links that enable units, by the key of the section [Install] (systemd.unit(5)).
var dependencies = map[string]string{"WantedBy": ".wants", "RequiredBy": ".requires", "UpheldBy": ".upholds"}

// IsDependency reports whether a path in Folder is that of a link by which another unit needs the unit with the name of the link.
func IsDependency(link string) bool {
	for _, folder := range dependencies {
		if path.Ext(path.Dir(link)) == folder {
			return true
		}
	}
	return false
}

// Installed is a unit that can be enabled.
type Installed struct {
	// File is the path of the unit's file. It is that of the template for an instance.
	File string
	// Links are the paths of the links that enable it.
	Links []string
	// Also are other units that are enabled and disabled together with it.
	Also []string
}

// Names returns the names of the files that define a unit, in the order of their priority: its own, and for an instance that of its template.
func Names(unit string) []string {
	prefix, instance, _ := strings.Cut(strings.TrimSuffix(unit, path.Ext(unit)), "@")
	if instance == "" {
		return []string{unit}
	}
	return []string{unit, prefix + "@" + path.Ext(unit)}
}

// Concerns reports whether a path is that of a file or a link of a unit, or of the template of an instance.
func Concerns(file, unit string) bool {
	names := Names(unit)
	if folder, isDropIn := strings.CutSuffix(path.Dir(file), ".d"); isDropIn && path.Dir(folder) == Folder {
		return slices.Contains(names, path.Base(folder))
	}
	return strings.HasPrefix(file, Folder+"/") && slices.Contains(names, path.Base(file))
}

// Parse reads the sections [Install] of a unit's file and its drop-ins (systemd.syntax(7)). An empty value removes the former ones.
func Parse(unit, file string, texts []string) (Installed, error) {
	values := map[string][]string{}
	for _, text := range texts {
		section := ""
		for line := range strings.SplitSeq(strings.ReplaceAll(text, "\\\n", " "), "\n") {
			line = strings.TrimSpace(line)
			key, value, isAssignment := strings.Cut(line, "=")
			switch key = strings.TrimSpace(key); {
			case strings.HasPrefix(line, "#"), strings.HasPrefix(line, ";"):
			case strings.HasPrefix(line, "["):
				section = line
			case section != "[Install]" || !isAssignment:
			case strings.TrimSpace(value) == "":
				delete(values, key)
			default:
				values[key] = append(values[key], strings.Fields(value)...)
			}
		}
	}
	name := unit
	if prefix, ok := strings.CutSuffix(strings.TrimSuffix(unit, path.Ext(unit)), "@"); ok {
		if len(values["DefaultInstance"]) == 0 {
			return Installed{}, fmt.Errorf("a template without DefaultInstance cannot be enabled: %w", unix.EINVAL)
		}
		name = prefix + "@" + values["DefaultInstance"][0] + path.Ext(unit)
	}
	prefix, instance, _ := strings.Cut(strings.TrimSuffix(name, path.Ext(name)), "@")
	specifiers := strings.NewReplacer("%%", "%", "%i", instance, "%p", prefix, "%n", name, "%N", strings.TrimSuffix(name, path.Ext(name)))
	found := Installed{File: file, Also: values["Also"]}
	for key, folder := range dependencies {
		for _, target := range values[key] {
			found.Links = append(found.Links, path.Join(Folder, specifiers.Replace(target)+folder, name))
		}
	}
	for _, alias := range values["Alias"] {
		found.Links = append(found.Links, path.Join(Folder, specifiers.Replace(alias)))
	}
	for _, link := range found.Links {
		if strings.Contains(link, "%") || !strings.HasPrefix(link, Folder+"/") {
			return Installed{}, fmt.Errorf("its section [Install] cannot be followed: %s: %w", link, unix.EINVAL)
		}
	}
	for _, name := range slices.Concat(found.Links, found.Also) {
		if config.Reserved(name) != "" {
			return Installed{}, fmt.Errorf("its section [Install] names a unit of the node stage: %s: %w", name, unix.EINVAL)
		}
	}
	return found, nil
}
