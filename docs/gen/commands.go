package main

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

// commands describes all commands that are not hidden, with their help.
func commands() (string, error) {
	var list, out strings.Builder
	walk(func(cmd *cobra.Command) {
		fmt.Fprintf(&list, "| [%s](#%s) | %s |\n", cmd.CommandPath(), anchor(cmd), cell(cmd.Short))
		out.WriteString("## " + cmd.CommandPath() + "\n\n" + block("text", cmd.UseLine()) + prose(cmp.Or(cmd.Long, cmd.Short+".")))
		if cmd.Example != "" {
			out.WriteString("Examples:\n\n" + block("bash", cmd.Example))
		}
		out.WriteString("Flags:\n\n" + block("text", cmd.LocalFlags().FlagUsages()))
	})
	return "| command | |\n|---|---|\n" + list.String() + "\n" + out.String(), nil
}

// walk calls visit for the command and all its subcommands that are not hidden.
func walk(visit func(*cobra.Command)) {
	var descend func(*cobra.Command)
	descend = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		cmd.InitDefaultHelpFlag()
		cmd.InitDefaultVersionFlag()
		visit(cmd)
		for _, sub := range cmd.Commands() {
			descend(sub)
		}
	}
	descend(cli.New(command.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}))
}

// exitCodes lists the exit codes, and the commands whose help explains their own.
func exitCodes() (string, error) {
	sections, err := read(root+"pkg/cli/command", "Exit codes")
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, s := range sections {
		out.WriteString(escape(s.intro) + "\n\n| code | meaning |\n|---|---|\n")
		for _, c := range s.constants {
			fmt.Fprintf(&out, "| %s | %s |\n", c.value, c.text())
		}
	}
	out.WriteString("\n## Commands with their own meanings\n\n| command | codes |\n|---|---|\n")
	walk(func(cmd *cobra.Command) {
		for paragraph := range strings.SplitSeq(cmd.Long, "\n\n") {
			if codes, ok := strings.CutPrefix(paragraph, "Exit codes: "); ok {
				fmt.Fprintf(&out, "| [%s](commands.md#%s) | %s |\n", cmd.CommandPath(), anchor(cmd), cell(codes))
			}
		}
	})
	return out.String(), nil
}

func anchor(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

var indented = regexp.MustCompile(`(?m)^[ \t]`)

// prose writes the paragraphs of a help text. A paragraph with indented lines is a list or a command, and keeps its lines.
func prose(text string) string {
	var out strings.Builder
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		switch {
		case strings.TrimSpace(paragraph) == "":
		case indented.MatchString(paragraph):
			out.WriteString(block("text", paragraph))
		default:
			out.WriteString(escape(strings.TrimSpace(paragraph)) + "\n\n")
		}
	}
	return out.String()
}

// indent is how cobra indents examples and flags.
var indent = regexp.MustCompile(`(?m)^  `)

func block(language, text string) string {
	return "```" + language + "\n" + indent.ReplaceAllString(strings.Trim(text, "\n"), "") + "\n```\n\n"
}

var special = regexp.MustCompile(`[<>*_$]`)

// escape returns a text without meaning in Markdown. Text in backquotes stays.
func escape(text string) string {
	parts := strings.Split(text, "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = special.ReplaceAllString(parts[i], `\$0`)
	}
	return strings.Join(parts, "`")
}

// cell returns a text for a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(escape(strings.Join(strings.Fields(text), " ")), "|", `\|`)
}
