package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/template"
	"unicode"
	"unicode/utf16"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// Outputs of most commands.
const (
	outputText = "text"
	outputJSON = "json"
	outputYAML = "yaml"
)

// textOutputs are what a command with no other outputs has.
func textOutputs() []string { return []string{outputText, outputJSON, outputYAML} }

// addOutput adds --output to a command that tells what it did.
func addOutput(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", outputText, "text, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(textOutputs(), cobra.ShellCompDirectiveNoFileComp))
}

// checkOutput leaves the format empty for text.
func checkOutput(format *string) error {
	switch *format {
	case outputText:
		*format = ""
		return nil
	case "", outputJSON, outputYAML:
		return nil
	}
	return &UsageError{Err: fmt.Errorf("unknown output %q: use %s", *format, strings.Join(textOutputs(), ", "))}
}

// printStructured prints a value as JSON or YAML.
func printStructured(streams Streams, format string, value any) error {
	if format == outputYAML {
		return writeYAML(streams.Out, value)
	}
	return writeJSON(streams.Out, value)
}

// writeJSON prints a value as JSON that steers no terminal: what it has of control and invisible characters is in its
// strings, where an escape means the same.
func writeJSON(w io.Writer, value any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(w, escaped(text.String(), func(r rune) string {
		var units strings.Builder
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&units, `\u%04x`, unit)
		}
		return units.String()
	}))
	return err
}

// writeYAML prints a value as YAML, likewise. The library takes no control character that is not escaped, and prints some
// invisible ones as they are; a document with such a one is printed in the style of JSON, which is YAML with other escapes.
func writeYAML(w io.Writer, value any) error {
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
	if strings.ContainsFunc(block, steers) {
		block = flow
	}
	_, err = io.WriteString(w, block)
	return err
}

// steers reports whether a terminal may take a character for a command, or show nothing of it.
func steers(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }

// escaped replaces the characters that steer a terminal.
func escaped(text string, escape func(rune) string) string {
	if !strings.ContainsFunc(text, steers) {
		return text
	}
	var safe strings.Builder
	for _, r := range text {
		if steers(r) {
			safe.WriteString(escape(r))
		} else {
			safe.WriteRune(r)
		}
	}
	return safe.String()
}

// printable replaces what a terminal would take for a command: names come from the release as they are.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return '?'
	}, s)
}

// printableLines is printable for text of several lines.
func printableLines(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return '?'
	}, strings.ReplaceAll(s, "\r\n", "\n"))
}

// valueFormats are the outputs that newValuePrinter knows.
func valueFormats() []string {
	return []string{"json", "yaml", "jsonpath=", "jsonpath-file=", "go-template=", "go-template-file="}
}

// newValuePrinter returns what prints a value in a format that kubectl has too: JSON, YAML, or what an expression or a
// template takes out of it. Templates see what is in the JSON, under the names it has there.
func newValuePrinter(output string) (func(io.Writer, any) error, error) {
	switch output {
	case outputJSON:
		return writeJSON, nil
	case outputYAML:
		return writeYAML, nil
	}
	kind, text, ok := strings.Cut(output, "=")
	if file, isFile := strings.CutSuffix(kind, "-file"); ok && isFile {
		data, err := os.ReadFile(text)
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
		return nil, fmt.Errorf("unknown output %q: use one of %s", output, strings.Join(valueFormats(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("--output %s: %w", kind, err)
	}
	return func(w io.Writer, v any) error {
		plain, err := plainValue(v)
		if err != nil {
			return err
		}
		// What fails half way prints nothing that a script could take for the whole.
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

// plainValue is what a reader of the JSON gets.
func plainValue(v any) (any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // sizes are not to be printed as 1.5e+07
	var plain any
	err = decoder.Decode(&plain)
	return plain, err
}
