package cli

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cluster-version/cvo/pkg/cli/command"
)

// pluginName is the file name by which kubectl finds the command as the plugin "kubectl cvo".
const pluginName = "kubectl-cvo"

// InvokedAs sets the command name in usage, examples and completions. For a program file with the name of kubectl's plugin the name is
// "kubectl cvo", so that users can type the printed commands.
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
	// cobra's name stays the file name, because completion scripts are registered for the name that the shell calls.
	root.Use = pluginName
	command.Annotate(root, cobra.CommandDisplayNameAnnotation, called)
	renameTexts(root, rename)
}

func renameTexts(cmd *cobra.Command, rename func(string) string) {
	cmd.Short, cmd.Long, cmd.Example = rename(cmd.Short), rename(cmd.Long), rename(cmd.Example)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { f.Usage = rename(f.Usage) })
	for _, sub := range cmd.Commands() {
		renameTexts(sub, rename)
	}
}
