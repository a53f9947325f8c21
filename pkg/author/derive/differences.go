package derive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/author/assemble"
)

// differences describes how a rebuilt release differs from the original: first its files, then the rest of the image.
func (e *Original) differences(r *assemble.Result) ([]string, error) {
	got, err := readReleaseLayer(r.Layer)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(union(e.files, got))) {
		was, before := e.files[name]
		is, after := got[name]
		switch {
		case !after:
			list = append(list, fmt.Sprintf("%s: no component contains it: add its folder with --from-dir", name))
		case !before:
			list = append(list, fmt.Sprintf("%s: the original release does not have it", name))
		case !bytes.Equal(was.data, is.data):
			list = append(list, fmt.Sprintf("%s: line %d differs", name, differentLine(was.data, is.data)))
		case !was.header.ModTime.Equal(is.header.ModTime) || was.header.Mode != is.header.Mode || was.header.Uid != is.header.Uid || was.header.Gid != is.header.Gid:
			list = append(list, fmt.Sprintf("%s: time, mode or owner differs", name))
		}
	}
	more, err := imageDifferences(e.img, r.Image)
	if err != nil {
		return nil, err
	}
	if list = append(list, more...); len(list) == 0 {
		list = append(list, "only order or compression differ: the original was built by another program or another version of this program")
	}
	return list, nil
}

func union[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// differentLine returns the number (from 1) of the first line that differs between two texts.
func differentLine(a, b []byte) int {
	line := 1
	for i := 0; i < len(a) && i < len(b) && a[i] == b[i]; i++ {
		if a[i] == '\n' {
			line++
		}
	}
	return line
}

// imageDifferences compares the images without the release's own layer: the layers below it, and the configuration except for fields
// derived from layers.
func imageDifferences(before, after v1.Image) ([]string, error) {
	var list []string
	wasManifest, err := before.Manifest()
	if err != nil {
		return nil, err
	}
	isManifest, err := after.Manifest()
	if err != nil {
		return nil, err
	}
	if wasManifest.MediaType != isManifest.MediaType {
		list = append(list, fmt.Sprintf("media type: original %s, rebuilt %s", wasManifest.MediaType, isManifest.MediaType))
	}
	below, now := wasManifest.Layers[:len(wasManifest.Layers)-1], isManifest.Layers[:len(isManifest.Layers)-1]
	if !slices.EqualFunc(below, now, func(a, b v1.Descriptor) bool { return a.Digest == b.Digest && a.MediaType == b.MediaType }) {
		list = append(list, "base image: its layers differ")
	}
	wasConfig, err := configFields(before)
	if err != nil {
		return nil, err
	}
	isConfig, err := configFields(after)
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(union(wasConfig, isConfig))) {
		if wasConfig[key] != isConfig[key] {
			list = append(list, strings.TrimSpace(fmt.Sprintf("configuration: %s: original %s, rebuilt %s", key, orNone(wasConfig[key]), orNone(isConfig[key]))))
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

// configFields returns the fields of an image's configuration, two levels deep, as JSON.
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
		case key == "rootfs": // derived from the layers
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
