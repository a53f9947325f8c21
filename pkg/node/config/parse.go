package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	kjson "sigs.k8s.io/json"
)

// version is the version of Ignition's specification that rendered MachineConfigs have.
const version = "3.5.0"

// specification ends a remedy with a link to Ignition's documentation.
const specification = "see https://coreos.github.io/ignition/configuration-v3_5"

// versions matches the accepted versions of Ignition's specification.
var versions = regexp.MustCompile(`^3\.[0-5]\.0$`)

// The kinds of single values in JSON.
const (
	text     = "string"
	integer  = "integer"
	fraction = "fraction"
	boolean  = "boolean"
)

// supported maps the fields of an Ignition config that nodes support, without indexes, to the kinds of their values.
var supported = map[string]string{
	"ignition.version":                   text,
	"passwd.users.name":                  text,
	"passwd.users.sshAuthorizedKeys":     text,
	"storage.files.contents.compression": text,
	"storage.files.contents.source":      text,
	"storage.files.group.id":             integer,
	"storage.files.group.name":           text,
	"storage.files.mode":                 integer,
	"storage.files.overwrite":            boolean,
	"storage.files.path":                 text,
	"storage.files.user.id":              integer,
	"storage.files.user.name":            text,
	"systemd.units.contents":             text,
	"systemd.units.dropins.contents":     text,
	"systemd.units.dropins.name":         text,
	"systemd.units.enabled":              boolean,
	"systemd.units.mask":                 boolean,
	"systemd.units.name":                 text,
}

// parse returns an Ignition config of version 3.0 to 3.5, checked and translated to 3.5. It returns an empty config for no content. Errors
// are of type *Error.
//
// The checks come before Ignition's own parser: that parser ignores unknown fields, and each invalid data URL costs it a goroutine and the
// memory of the URL, because dataurl.DecodeString does not end its lexer.
func (c checker) parse(raw []byte) (types.Config, error) {
	switch string(bytes.TrimSpace(raw)) {
	case "", "null", "{}":
		return types.Config{Ignition: types.Ignition{Version: version}}, nil
	}
	var tree any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &tree); err != nil {
		return types.Config{}, c.errorf("", "correct the JSON", "does not parse: %s", plain(err.Error()))
	}
	if err := c.checkVersion(tree); err != nil {
		return types.Config{}, err
	}
	var config types.Config
	unknown, err := kjson.UnmarshalStrict(raw, &config)
	if err != nil {
		return types.Config{}, c.wrongType(raw, tree, err)
	}
	if len(unknown) > 0 {
		return types.Config{}, c.unknownField(unknown[0])
	}
	isUnsupported := func(field, _ string) bool { return supported[field] == "" }
	if field := find(tree, "", "", isUnsupported); field != "" {
		return types.Config{}, c.errorf(field, "remove it; nodes support files, systemd units and the SSH keys of user core", "is not supported")
	}
	if err := c.check(config); err != nil {
		return types.Config{}, err
	}
	config, report, err := v3_5.ParseCompatibleVersion(raw)
	for _, entry := range report.Entries {
		if entry.Kind.IsFatal() {
			return types.Config{}, c.errorf(jsonPath(entry.Context.Path), specification, "is invalid: %s", plain(entry.Message))
		}
	}
	if err != nil {
		return types.Config{}, c.errorf("", specification, "is invalid: %v", err)
	}
	return config, nil
}

// checkVersion comes first, because an older or newer config has other fields.
func (c checker) checkVersion(tree any) error {
	config, _ := tree.(map[string]any)
	section, _ := config["ignition"].(map[string]any)
	switch found, ok := section["version"].(string); {
	case !ok:
		return c.errorf("ignition.version", "set it to "+version, "is missing")
	case !versions.MatchString(found):
		return c.errorf("ignition.version", "convert the config to "+version, "is %s, but only 3.0.0 to %s are supported", quote(found), version)
	}
	return nil
}

// wrongType explains an error of decoding valid JSON. It finds the path of a single value itself. For a list or an object it uses the error
// of the standard library, whose path lacks indexes and contains names of embedded structs.
func (c checker) wrongType(raw []byte, tree any, err error) error {
	isWrong := func(field, kind string) bool {
		if want := supported[field]; want != "" {
			return want != kind
		}
		for known := range supported {
			if strings.HasPrefix(known, field+".") {
				return true
			}
		}
		return false
	}
	if field := find(tree, "", "", isWrong); field != "" {
		return c.errorf(field, specification, "has a value of another type")
	}
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(json.Unmarshal(raw, new(types.Config)), &wrong) {
		field := strings.NewReplacer(".Node.", ".", ".FileEmbedded1.", ".").Replace(wrong.Field)
		return c.errorf(field, specification, "has a value of another type")
	}
	return c.errorf("", specification, "does not parse: %s", plain(err.Error()))
}

// unknownField explains an error of strict decoding.
func (c checker) unknownField(err error) error {
	field := ""
	if located := kjson.FieldError(nil); errors.As(err, &located) {
		field = located.FieldPath()
	}
	if strings.HasPrefix(err.Error(), "duplicate") {
		return c.errorf(field, "remove all but one", "occurs more than once")
	}
	return c.errorf(field, "correct its spelling or remove it", "is not a field of Ignition %s", version)
}

// find returns the path of the first single value for which match returns true, in the order of the fields' names, or "". match gets the path
// without indexes, and the kind of the value. It does not see empty lists and objects, because Go programs write them for absent sections.
func find(value any, indexed, plain string, match func(field, kind string) bool) string {
	kind := ""
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if found := find(value[key], join(indexed, key), join(plain, key), match); found != "" {
				return found
			}
		}
		return ""
	case []any:
		for i, element := range value {
			if found := find(element, fmt.Sprintf("%s[%d]", indexed, i), plain, match); found != "" {
				return found
			}
		}
		return ""
	case string:
		kind = text
	case bool:
		kind = boolean
	case int64:
		kind = integer
	case float64:
		kind = fraction
	default: // null
		return ""
	}
	if match(plain, kind) {
		return indexed
	}
	return ""
}

// jsonPath returns a path of Ignition's report in the form storage.files[2].path.
func jsonPath(elements []any) string {
	out := ""
	for _, element := range elements {
		if index, ok := element.(int); ok {
			out += fmt.Sprintf("[%d]", index)
		} else {
			out = join(out, fmt.Sprint(element))
		}
	}
	return out
}

// join appends a field to a JSON path.
func join(parent, field string) string {
	if parent == "" {
		return field
	}
	return parent + "." + field
}
