// Package printing prints values for scripts and people: JSON, YAML, JSONPath expressions and templates, as in kubectl. It takes any value
// and a format. Its output cannot control a terminal, whatever a release or a cluster contains.
package printing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/template"
	"unicode"
	"unicode/utf16"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/internal/inputfile"
	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

// Output formats that most commands share.
const (
	FormatText = "text"
	FormatJSON = "json"
	FormatYAML = "yaml"
)

// Formats returns the output formats of a command without special formats.
func Formats() []string { return []string{FormatText, FormatJSON, FormatYAML} }

// AddFlag adds --output to a command that reports its result.
func AddFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", FormatText, "text, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(Formats(), cobra.ShellCompDirectiveNoFileComp))
}

// Check rejects unknown formats and sets the format to "" for text.
func Check(format *string) error {
	switch *format {
	case FormatText:
		*format = ""
		return nil
	case "", FormatJSON, FormatYAML:
		return nil
	}
	return &command.UsageError{Err: fmt.Errorf("unknown output %q: use %s", *format, strings.Join(Formats(), ", "))}
}

// Structured prints a value as JSON or YAML.
func Structured(streams command.Streams, format string, value any) error {
	if format == FormatYAML {
		return YAML(streams.Out, value)
	}
	return JSON(streams.Out, value)
}

// JSON prints a value as JSON that cannot control a terminal. Control and invisible characters occur only inside
// strings, where a JSON escape is equivalent.
func JSON(w io.Writer, value any) error { return encodeJSON(w, value, "  ") }

// JSONLine is like JSON but prints one line.
func JSONLine(w io.Writer, value any) error { return encodeJSON(w, value, "") }

func encodeJSON(w io.Writer, value any, indent string) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(w, EscapedJSON(text.String()))
	return err
}

// EscapedJSON returns equivalent JSON in which characters that control a terminal are escaped.
func EscapedJSON(text string) string {
	return escaped(text, func(r rune) string {
		var units strings.Builder
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&units, `\u%04x`, unit)
		}
		return units.String()
	})
}

// YAML prints a value as YAML that cannot control a terminal. The library escapes all control characters but prints some invisible
// characters unchanged. YAML prints a document with such a character in JSON style, which is YAML with escapes.
func YAML(w io.Writer, value any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return err
	}
	flow := escaped(text.String(), func(r rune) string { return fmt.Sprintf(`\U%08x`, r) })
	data, err := yaml.JSONToYAML([]byte(flow))
	if err != nil {
		return err
	}
	block := string(data)
	if strings.ContainsFunc(block, Controls) {
		block = flow
	}
	_, err = io.WriteString(w, block)
	return err
}

// Controls reports whether a terminal may interpret a character as a command or hide it.
func Controls(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }

// escaped applies escape to the characters that control a terminal.
func escaped(text string, escape func(rune) string) string {
	if !strings.ContainsFunc(text, Controls) {
		return text
	}
	var safe strings.Builder
	for _, r := range text {
		if Controls(r) {
			safe.WriteString(escape(r))
		} else {
			safe.WriteRune(r)
		}
	}
	return safe.String()
}

// ValueFormats returns the output formats that NewValuePrinter accepts.
func ValueFormats() []string {
	return []string{"json", "yaml", "jsonpath=", "jsonpath-file=", "go-template=", "go-template-file="}
}

// NewValuePrinter returns a function that prints a value in one of kubectl's formats: JSON, YAML, a JSONPath expression
// or a template. Expressions and templates see the fields under their JSON names, without characters that control a
// terminal. Characters that the expression itself adds, such as NUL between values, are kept.
func NewValuePrinter(output string) (func(io.Writer, any) error, error) {
	switch output {
	case FormatJSON:
		return JSON, nil
	case FormatYAML:
		return YAML, nil
	}
	kind, text, ok := strings.Cut(output, "=")
	if file, isFile := strings.CutSuffix(kind, "-file"); ok && isFile {
		data, err := inputfile.Read(text)
		if err != nil {
			return nil, fmt.Errorf("--output %s: %w", kind, err)
		}
		kind, text = file, strings.TrimRight(string(data), "\n")
	}
	var execute func(io.Writer, any) error
	var err error
	switch {
	case ok && kind == "jsonpath":
		execute, err = jsonPathPrinter(text)
	case ok && (kind == "go-template" || kind == "template"):
		execute, err = templatePrinter(text)
	default:
		return nil, fmt.Errorf("unknown output %q: use one of %s", output, strings.Join(ValueFormats(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("--output %s: %w", kind, err)
	}
	return func(w io.Writer, v any) error {
		plain, err := plainValue(v)
		if err != nil {
			return err
		}
		plain = printableValue(plain)
		// The output is buffered, so that a script cannot mistake partial output for all of it after a failure.
		var out bytes.Buffer
		if err := execute(&out, plain); err != nil {
			return fmt.Errorf("--output %s: %w", kind, err)
		}
		_, err = out.WriteTo(w)
		return err
	}, nil
}

func jsonPathPrinter(text string) (func(io.Writer, any) error, error) {
	if !strings.Contains(text, "{") {
		text = "{" + text + "}"
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	return path.Execute, path.Parse(text)
}

func templatePrinter(text string) (func(io.Writer, any) error, error) {
	t, err := template.New("output").Parse(text)
	if err != nil {
		return nil, err
	}
	return t.Execute, nil
}

// plainValue returns the value as its JSON decodes it: maps, slices, strings, numbers and booleans.
func plainValue(v any) (any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // otherwise sizes would be printed as 1.5e+07
	var plain any
	err = decoder.Decode(&plain)
	return plain, err
}

// printableValue replaces the characters that control a terminal in all strings and field names of a value.
func printableValue(v any) any {
	switch v := v.(type) {
	case string:
		return printable.Lines(v)
	case []any:
		for i := range v {
			v[i] = printableValue(v[i])
		}
	case map[string]any:
		fields := make(map[string]any, len(v))
		for name, field := range v {
			fields[printable.Text(name)] = printableValue(field)
		}
		return fields
	}
	return v
}
