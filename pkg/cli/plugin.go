package cli

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// pluginName is the file name under which kubectl finds the command as its own: kubectl cvo.
const pluginName = "kubectl-cvo"

// InvokedAs lets a command made by New speak of itself as it was called: as kubectl's plugin if the program's file has
// that name, in usage, examples and completions, so that what they print can be typed.
func InvokedAs(root *cobra.Command, program string) {
	if strings.TrimSuffix(filepath.Base(program), ".exe") != pluginName {
		return
	}
	called := "kubectl " + root.Name()
	var verbs []string
	for _, sub := range root.Commands() {
		verbs = append(verbs, regexp.QuoteMeta(sub.Name()))
	}
	own := regexp.MustCompile(`\b` + root.Name() + ` (` + strings.Join(verbs, "|") + `)\b`)
	rename := func(text string) string { return own.ReplaceAllString(text, called+" $1") }
	// The name is the file's: completion scripts are for what the shell calls.
	root.Use = pluginName
	if root.Annotations == nil {
		root.Annotations = map[string]string{}
	}
	root.Annotations[cobra.CommandDisplayNameAnnotation] = called
	renameTexts(root, rename)
}

func renameTexts(cmd *cobra.Command, rename func(string) string) {
	cmd.Short, cmd.Long, cmd.Example = rename(cmd.Short), rename(cmd.Long), rename(cmd.Example)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { f.Usage = rename(f.Usage) })
	for _, sub := range cmd.Commands() {
		renameTexts(sub, rename)
	}
}
