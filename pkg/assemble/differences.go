package assemble

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// differences lists in what a release that was made again differs, most telling first: files, then what is around them.
func (e *Existing) differences(r *Result) ([]string, error) {
	got, err := readReleaseLayer(r.layer)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(union(e.layer, got))) {
		was, before := e.layer[name]
		is, after := got[name]
		switch {
		case !after:
			list = append(list, fmt.Sprintf("%s: no component brings it: name the folder that it came from by --from-dir", name))
		case !before:
			list = append(list, fmt.Sprintf("%s: the release does not have it", name))
		case !bytes.Equal(was.data, is.data):
			list = append(list, fmt.Sprintf("%s: line %d is another", name, differentLine(was.data, is.data)))
		case !was.header.ModTime.Equal(is.header.ModTime) || was.header.Mode != is.header.Mode || was.header.Uid != is.header.Uid || was.header.Gid != is.header.Gid:
			list = append(list, fmt.Sprintf("%s: time, mode or owner is another", name))
		}
	}
	more, err := imageDifferences(e.img, r.Image)
	if err != nil {
		return nil, err
	}
	if list = append(list, more...); len(list) == 0 {
		list = append(list, "the content is the same, only its order or compression is not: the release was made by another program, or another version of this one")
	}
	return list, nil
}

func union[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// differentLine is the first line, from 1, in which two texts differ.
func differentLine(a, b []byte) int {
	line := 1
	for i := 0; i < len(a) && i < len(b) && a[i] == b[i]; i++ {
		if a[i] == '\n' {
			line++
		}
	}
	return line
}

// imageDifferences compares what is not the release's files: the layers below, and the configuration but for what
// follows from layers.
func imageDifferences(was, is v1.Image) ([]string, error) {
	var list []string
	wasManifest, err := was.Manifest()
	if err != nil {
		return nil, err
	}
	isManifest, err := is.Manifest()
	if err != nil {
		return nil, err
	}
	if wasManifest.MediaType != isManifest.MediaType {
		list = append(list, fmt.Sprintf("media type: %s, not %s", wasManifest.MediaType, isManifest.MediaType))
	}
	below, now := wasManifest.Layers[:len(wasManifest.Layers)-1], isManifest.Layers[:len(isManifest.Layers)-1]
	if !slices.EqualFunc(below, now, func(a, b v1.Descriptor) bool { return a.Digest == b.Digest && a.MediaType == b.MediaType }) {
		list = append(list, "base image: its layers are others")
	}
	wasConfig, err := configFields(was)
	if err != nil {
		return nil, err
	}
	isConfig, err := configFields(is)
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(union(wasConfig, isConfig))) {
		if wasConfig[key] != isConfig[key] {
			list = append(list, strings.TrimSpace(fmt.Sprintf("configuration: %s: %s, not %s", key, orNone(wasConfig[key]), orNone(isConfig[key]))))
		}
	}
	return list, nil
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// configFields are the parts of an image's configuration, two levels deep, as JSON.
func configFields(img v1.Image) (map[string]string, error) {
	raw, err := img.RawConfigFile()
	if err != nil {
		return nil, err
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(raw, &top); err != nil {
		return nil, fmt.Errorf("decoding the configuration: %w", err)
	}
	fields := map[string]string{}
	for key, value := range top {
		var inner map[string]json.RawMessage
		switch {
		case key == "rootfs": // said by the layers
		case key == "config" && json.Unmarshal(value, &inner) == nil:
			for k, v := range inner {
				fields["config."+k] = string(v)
			}
		default:
			fields[key] = string(value)
		}
	}
	return fields, nil
}
