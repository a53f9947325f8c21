package config

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

// Folder is the folder of the node stage on hosts. Package host keeps its journal there, so MachineConfigs must not write there.
const Folder = "/var/lib/cvo-node"

// Services of the node stage on hosts. Only the node stage may write their files.
const (
	// ApplyUnit changes a host for its daemon. No file defines it.
	ApplyUnit = "cvo-node-apply.service"
	// GuardUnit guards a pending change.
	GuardUnit = "cvo-node-guard.service"
)

// Reserved returns the service of the node stage that a path or the name of a unit belongs to; empty if there is none.
func Reserved(name string) string {
	for _, unit := range []string{ApplyUnit, GuardUnit} {
		if strings.Contains("/"+name, "/"+unit) {
			return unit
		}
	}
	return ""
}

// volatile lists folders whose files a MachineConfig cannot manage: the kernel serves them, or they are empty after a reboot.
var volatile = []string{"/dev", "/proc", "/run", "/sys", "/tmp", "/var/run"}

// unitFolder is the folder of systemd units that belong to the administrator, see systemd.unit(5).
const unitFolder = "/etc/systemd/system"

// Limits of Linux for a file name and a path, in bytes. The path includes its final NUL.
const (
	maxName = 255
	maxPath = 4095
)

// checker checks the MachineConfig called name.
type checker struct{ name string }

// errorf returns an *Error about a field of the Ignition config. An empty field is the config as a whole.
func (c checker) errorf(field, remedy, format string, args ...any) error {
	return c.specErrorf(join("config", field), remedy, format, args...)
}

// specErrorf returns an *Error about a field of the spec.
func (c checker) specErrorf(field, remedy, format string, args ...any) error {
	return &Error{Name: c.name, Path: plain("spec." + strings.TrimSuffix(field, ".")), Problem: fmt.Sprintf(format, args...), Remedy: remedy}
}

// Validate returns an *Error with the first reason why nodes cannot use a MachineConfig, or nil. It does not compare the MachineConfig with
// others; Render does.
func Validate(mc *mcfgv1.MachineConfig) error {
	_, err := checker{name: mc.Name}.machineConfig(mc.Spec)
	return err
}

// machineConfig checks a spec and returns its Ignition config.
func (c checker) machineConfig(spec mcfgv1.MachineConfigSpec) (types.Config, error) {
	switch spec.KernelType {
	case "", "default", "realtime", "64k-pages":
	default:
		return types.Config{}, c.specErrorf("kernelType", "use default, realtime or 64k-pages", "is %s, an unknown kernel", quote(spec.KernelType))
	}
	for i, argument := range spec.KernelArguments {
		if argument == "" || strings.ContainsFunc(argument, unicode.IsControl) {
			return types.Config{}, c.specErrorf(fmt.Sprintf("kernelArguments[%d]", i), "correct or remove it",
				"is %s, but an argument must not be empty or contain control characters", quote(argument))
		}
	}
	const problem = "is %s, but must be one word of printable ASCII characters that does not begin with a dash"
	for i, extension := range spec.Extensions {
		if extension == "" || !isWord(extension) {
			return types.Config{}, c.specErrorf(fmt.Sprintf("extensions[%d]", i), "correct or remove it", problem, quote(extension))
		}
	}
	if !isWord(spec.OSImageURL) {
		return types.Config{}, c.specErrorf("osImageURL", "use the pullspec of an image", problem, quote(spec.OSImageURL))
	}
	if image := spec.BaseOSExtensionsContainerImage; !isWord(image) {
		return types.Config{}, c.specErrorf("baseOSExtensionsContainerImage", "use the pullspec of an image", problem, quote(image))
	}
	return c.parse(spec.Config.Raw)
}

// check rejects content that Ignition accepts but a node cannot use. The config has only supported fields.
func (c checker) check(config types.Config) error {
	remaining := maxData
	for i, file := range config.Storage.Files {
		field := fmt.Sprintf("storage.files[%d]", i)
		if err := c.checkFile(field, file); err != nil {
			return err
		}
		data, err := decode(file.Contents, remaining)
		if errors.Is(err, errTooLarge) {
			return c.errorf(field+".contents", "shrink the files", "is too large: all files together have at most %d bytes of data", maxData)
		}
		if err != nil {
			return c.errorf(field+".contents", "use a data URL, such as data:;base64,aGVsbG8K", "is not usable: %v", err)
		}
		remaining -= len(data)
	}
	for i, unit := range config.Systemd.Units {
		field := fmt.Sprintf("systemd.units[%d]", i)
		if err := c.checkName(field+".name", unit.Name); err != nil {
			return err
		}
		if Reserved(unit.Name) != "" {
			return c.errorf(field+".name", "choose another name", "is %s, which belongs to the node stage", quote(unit.Name))
		}
		for j, dropIn := range unit.Dropins {
			if err := c.checkName(fmt.Sprintf("%s.dropins[%d].name", field, j), dropIn.Name); err != nil {
				return err
			}
		}
	}
	for i, user := range config.Passwd.Users {
		field := fmt.Sprintf("passwd.users[%d]", i)
		if user.Name != "core" {
			return c.errorf(field+".name", "use core", "is %s, but nodes support only the user core", quote(user.Name))
		}
		for j, key := range user.SSHAuthorizedKeys {
			if strings.TrimSpace(string(key)) == "" || strings.ContainsFunc(string(key), isUnprintable) {
				return c.errorf(fmt.Sprintf("%s.sshAuthorizedKeys[%d]", field, j), "write each key as a separate list element",
					"must be one line of printable characters")
			}
		}
	}
	return conflict(c.places(config))
}

func (c checker) checkFile(field string, file types.File) error {
	const choose = "choose another path"
	switch name := file.Path; {
	case strings.ContainsFunc(name, isUnprintable):
		return c.errorf(field+".path", choose, "is %s, which contains control characters", quote(name))
	case name == "/":
		return c.errorf(field+".path", choose, "is the root folder")
	case len(name) > maxPath || slices.ContainsFunc(strings.Split(name, "/"), func(s string) bool { return len(s) > maxName }):
		return c.errorf(field+".path", choose, "is too long: a path has at most %d bytes, a name in it %d", maxPath, maxName)
	case isBelow(name, Folder):
		return c.errorf(field+".path", choose, "is %s, but the node stage keeps its own files in %s", quote(name), Folder)
	case Reserved(name) != "":
		return c.errorf(field+".path", choose, "is %s, but %s belongs to the node stage", quote(name), Reserved(name))
	}
	for _, folder := range volatile {
		if isBelow(file.Path, folder) {
			return c.errorf(field+".path", choose, "is %s, but files in %s do not survive a reboot", quote(file.Path), folder)
		}
	}
	if file.Mode != nil && (*file.Mode < 0 || *file.Mode > 0o777) {
		return c.errorf(field+".mode", "use the permission bits as a decimal number, such as 420 for 0644",
			"is %d (octal %#o), but setuid, setgid, sticky and unknown bits are not allowed", *file.Mode, *file.Mode)
	}
	for _, owner := range []struct {
		field string
		id    *int
	}{{".user.id", file.User.ID}, {".group.id", file.Group.ID}} {
		// The largest number means "no change" to chown(2).
		if owner.id != nil && (*owner.id < 0 || int64(*owner.id) >= math.MaxUint32) {
			return c.errorf(field+owner.field, "use a number from 0 to 4294967294", "is %d", *owner.id)
		}
	}
	if file.Contents.Source == nil && value(file.Contents.Compression) != "" {
		return c.errorf(field+".contents.compression", "add contents.source", "has no source")
	}
	return nil
}

// checkName checks the name of a unit or a drop-in, which becomes a file name.
func (c checker) checkName(field, name string) error {
	if len(name) > maxName || strings.HasPrefix(name, ".") || strings.Contains(name, "..") ||
		strings.Contains(name, "/") || !isASCII(name) {
		return c.errorf(field, "rename it", "is %s, but must be a file name of at most %d printable ASCII characters without spaces, slashes, double dots or a leading dot",
			quote(name), maxName)
	}
	return nil
}

// place is a file that a MachineConfig puts on a host.
type place struct {
	path string
	// field is the file's JSON path in the Ignition config of the MachineConfig called owner.
	field, owner string
}

// places returns the places of a config's files, units and drop-ins, in this order.
func (c checker) places(config types.Config) []place {
	var all []place
	for i, file := range config.Storage.Files {
		all = append(all, place{file.Path, fmt.Sprintf("storage.files[%d]", i), c.name})
	}
	for i, unit := range config.Systemd.Units {
		field := fmt.Sprintf("systemd.units[%d]", i)
		if value(unit.Contents) != "" || unit.Mask != nil && *unit.Mask {
			all = append(all, place{path.Join(unitFolder, unit.Name), field, c.name})
		}
		for j, dropIn := range unit.Dropins {
			if value(dropIn.Contents) != "" {
				all = append(all, place{path.Join(unitFolder, unit.Name+".d", dropIn.Name), fmt.Sprintf("%s.dropins[%d]", field, j), c.name})
			}
		}
	}
	return all
}

// isUnit reports whether the place belongs to a systemd unit, and not to the files.
func (p place) isUnit() bool { return strings.HasPrefix(p.field, "systemd") }

// conflict returns an *Error for the first place that is below another one, or that is both a file and a unit. The same file or unit may
// occur in several MachineConfigs.
func conflict(all []place) error {
	byPath := make(map[string]place, len(all))
	for _, p := range all {
		if other, ok := byPath[p.path]; ok && p.isUnit() != other.isUnit() {
			return checker{name: p.owner}.errorf(p.field, "remove one of the two", "is %s, the same file on a host as spec.config.%s of MachineConfig %s",
				quote(p.path), other.field, other.owner)
		}
		byPath[p.path] = p
	}
	for _, p := range all {
		for end := strings.LastIndexByte(p.path, '/'); end > 0; end = strings.LastIndexByte(p.path[:end], '/') {
			if other, ok := byPath[p.path[:end]]; ok {
				return checker{name: p.owner}.errorf(p.field, "remove one of the two", "is %s, below the file %s of MachineConfig %s",
					quote(p.path), quote(other.path), other.owner)
			}
		}
	}
	return nil
}

// isBelow reports whether a path is a folder or in it.
func isBelow(name, folder string) bool {
	rest, ok := strings.CutPrefix(name, folder)
	return ok && (rest == "" || rest[0] == '/')
}

// isWord reports whether a host can pass a value to a program as an argument: it does not begin with a dash and has no spaces. An empty
// value is a word.
func isWord(value string) bool { return !strings.HasPrefix(value, "-") && isASCII(value) }

// isASCII reports whether a text has only printable ASCII characters, without spaces.
func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= unicode.MaxASCII })
}

// isUnprintable reports whether a rune is a control character or stands for bytes that are not UTF-8.
func isUnprintable(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }
