package inject

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
)

func asksForTLS(u *unstructured.Unstructured) bool {
	gvk := u.GroupVersionKind()
	return gvk.Group == "" && gvk.Kind == "ConfigMap" && u.GetAnnotations()[api.InjectTLSAnnotation] == "true"
}

// into returns a copy of a ConfigMap in which every configuration file of a known kind has these TLS settings.
func (s TLS) into(configMap map[string]any) map[string]any {
	return Replace(configMap, []string{"data"}, func(value any) any {
		data, _ := value.(map[string]any)
		data = maps.Clone(data)
		for key, value := range data {
			if text, ok := value.(string); ok {
				data[key] = s.intoFile(text)
			}
		}
		return data
	})
}

// intoFile returns a configuration file with these TLS settings. It returns other texts unchanged: text that is not YAML, several
// documents, or a document of another kind.
func (s TLS) intoFile(text string) string {
	suites := make([]any, 0, len(s.CipherSuites))
	for _, suite := range s.CipherSuites {
		suites = append(suites, suite)
	}
	text = servingSetting{"cipherSuites", suites, len(suites) > 0}.into(text)
	return servingSetting{"minTLSVersion", s.MinVersion, s.MinVersion != ""}.into(text)
}

// servingSetting is one field of servingInfo. It is removed if it is not set.
type servingSetting struct {
	name  string
	value any
	set   bool
}

// into changes only the field's lines if the format of the file allows it. Otherwise, it rewrites the file, which keeps comments. If
// neither works, it writes only the values.
func (c servingSetting) into(text string) string {
	document, values, ok := configuration(text)
	if !ok {
		return text
	}
	want := c.intoValues(values)
	if reflect.DeepEqual(values, want) {
		return text
	}
	for _, edit := range []func() string{
		func() string { return c.splice(text, document.Content[0]) },
		func() string { return c.rewrite(document) },
	} {
		edited := edit()
		if _, got, ok := configuration(edited); ok && reflect.DeepEqual(got, want) {
			return edited
		}
	}
	return encodeYAML(want)
}

// configuration parses a file. It reports whether the file is one document of a kind that has servingInfo.
func configuration(text string) (*yaml.Node, map[string]any, bool) {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	var document, more yaml.Node
	if decoder.Decode(&document) != nil || document.Kind != yaml.DocumentNode {
		return nil, nil, false
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, nil, false
	}
	var values map[string]any
	if document.Content[0].Kind != yaml.MappingNode || document.Decode(&values) != nil {
		return nil, nil, false
	}
	switch [2]any{values["apiVersion"], values["kind"]} {
	case [2]any{"operator.openshift.io/v1alpha1", "GenericOperatorConfig"},
		[2]any{"config.openshift.io/v1", "GenericControllerConfig"}:
		return &document, values, true
	}
	return nil, nil, false
}

// intoValues returns the values that the resulting file must contain.
func (c servingSetting) intoValues(values map[string]any) map[string]any {
	info, _ := values["servingInfo"].(map[string]any)
	if _, there := info[c.name]; !there && !c.set {
		return values
	}
	info, values = maps.Clone(info), maps.Clone(values)
	if info == nil {
		info = map[string]any{}
	}
	delete(info, c.name)
	if c.set {
		info[c.name] = c.value
	}
	values["servingInfo"] = info
	return values
}

// splice replaces, adds or removes the field's lines. The result is correct only for plain block style, so the caller checks it.
func (c servingSetting) splice(text string, root *yaml.Node) string {
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	lines := strings.SplitAfter(text, "\n")
	lines = lines[:len(lines)-1]
	var with []string
	from, to := 0, 0
	infoKey, info := mappingField(root, "servingInfo")
	switch {
	case info == nil:
		from = blockEnd(lines, root.Content[len(root.Content)-2])
		to = from
		with = indented(root.Column-1, map[string]any{"servingInfo": map[string]any{c.name: c.value}})
	case len(info.Content) == 0:
		return ""
	default:
		column := info.Content[0].Column - 1
		key, _ := mappingField(info, c.name)
		if key == nil {
			from = blockEnd(lines, infoKey)
			to = from
		} else {
			from, to = key.Line-1, blockEnd(lines, key)
		}
		if c.set {
			with = indented(column, map[string]any{c.name: c.value})
		} else if len(info.Content) == 2 {
			from, to = infoKey.Line-1, blockEnd(lines, infoKey)
			with = indented(infoKey.Column-1, map[string]any{"servingInfo": map[string]any{}})
		}
	}
	if to > len(lines) {
		return "" // YAML also has other line breaks
	}
	return strings.Join(slices.Concat(lines[:from], with, lines[to:]), "")
}

// blockEnd returns the line (from 0) after the value of a key. The value consists of lines that are indented deeper, or of list items at
// the same depth. Trailing blank lines and comments do not belong to it.
func blockEnd(lines []string, key *yaml.Node) int {
	end := key.Line
	for n := key.Line; n < len(lines); n++ {
		content := strings.TrimLeft(lines[n], " ")
		indent := len(lines[n]) - len(content)
		content = strings.TrimSpace(content)
		switch {
		case content == "" || content[0] == '#':
			continue
		case indent > key.Column-1, indent == key.Column-1 && (content == "-" || strings.HasPrefix(content, "- ")):
			end = n + 1
		default:
			return end
		}
	}
	return end
}

func indented(column int, value any) []string {
	var lines []string
	for line := range strings.Lines(encodeYAML(value)) {
		lines = append(lines, strings.Repeat(" ", column)+line)
	}
	return lines
}

// rewrite sets the field in the parsed file and encodes the whole file.
func (c servingSetting) rewrite(document *yaml.Node) string {
	root := document.Content[0]
	_, info := mappingField(root, "servingInfo")
	switch {
	case info == nil:
		info = &yaml.Node{Kind: yaml.MappingNode}
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "servingInfo"}, info)
	case info.Kind != yaml.MappingNode:
		*info = yaml.Node{Kind: yaml.MappingNode, HeadComment: info.HeadComment, LineComment: info.LineComment, FootComment: info.FootComment}
	}
	var value yaml.Node
	if err := value.Encode(c.value); err != nil {
		return ""
	}
	key, old := mappingField(info, c.name)
	switch {
	case !c.set:
		info.Content = slices.DeleteFunc(info.Content, func(n *yaml.Node) bool { return n == key || n == old })
	case old != nil:
		*old = value
	default:
		info.Content = append(info.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: c.name}, &value)
	}
	return encodeYAML(document)
}

// mappingField returns the key and the value of a field of a mapping, or nil if it is missing.
func mappingField(mapping *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i], mapping.Content[i+1]
		}
	}
	return nil, nil
}

// encodeYAML writes YAML as most manifests do: with two spaces of indentation, and lists at the depth of their key. It returns "" on
// errors.
func encodeYAML(value any) string {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if encoder.Encode(value) != nil || encoder.Close() != nil {
		return ""
	}
	return out.String()
}
