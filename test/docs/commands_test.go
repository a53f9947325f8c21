package docs_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/ring"
)

// block is a fenced block of a page. Its commands begin with a dollar sign, and their output follows.
type block struct {
	page string
	line int
	// notRun is the reason why no walk runs the block, from the HTML comment before it.
	notRun string
	// notCompared is the reason why the page shows other output than the walk, also from an HTML comment.
	notCompared string
	commands    []typed
}

// typed is a command with its continuation lines and its output on the page.
type typed struct {
	line   int
	text   string
	output []string
}

// marker excludes a block from being run, or its output from being compared, and gives the reason.
var marker = regexp.MustCompile(`^<!-- not (run|compared): (.+) -->$`)

// commandPages returns the pages with commands for readers to type.
func commandPages(t *testing.T) []string {
	t.Helper()
	pages := []string{"README.md", "CONTRIBUTING.md", "examples/platform/README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/user/*.md", "docs/dev/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, file := range found {
			page, err := filepath.Rel(root, file)
			require.NoError(t, err)
			pages = append(pages, filepath.ToSlash(page))
		}
	}
	return pages
}

// readBlocks returns the blocks of a page.
func readBlocks(t *testing.T, page string) []block {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	lines := strings.Split(string(data), "\n")
	var blocks []block
	for i := 0; i < len(lines); i++ {
		language, fenced := strings.CutPrefix(strings.TrimSpace(lines[i]), "```")
		if !fenced {
			assert.NotRegexp(t, `^    (\$ |(cvo|kubectl|make|bin/cvo) [a-z-])`, lines[i], "%s:%d: this command is outside of a ```console block", page, i+1)
			continue
		}
		end := i + 1 + slices.IndexFunc(lines[i+1:], func(line string) bool { return strings.TrimSpace(line) == "```" })
		require.Greater(t, end, i, "%s:%d: the block does not end", page, i+1)
		if language == "console" {
			b := block{page: page, line: i + 1, commands: readCommands(lines[i+1:end], i+2)}
			if i > 0 {
				if found := marker.FindStringSubmatch(lines[i-1]); found != nil {
					if found[1] == "run" {
						b.notRun = found[2]
					} else {
						b.notCompared = found[2]
					}
				}
			}
			blocks = append(blocks, b)
		}
		i = end
	}
	return blocks
}

func readCommands(lines []string, first int) []typed {
	var commands []typed
	open := false
	for i, line := range lines {
		text, begins := strings.CutPrefix(line, "$ ")
		switch {
		case begins && !open:
			commands = append(commands, typed{line: first + i, text: text})
		case len(commands) == 0:
			continue // output of an earlier command
		case open:
			commands[len(commands)-1].text += "\n" + line
		default:
			last := &commands[len(commands)-1]
			last.output = append(last.output, line)
			continue
		}
		open = !complete(commands[len(commands)-1].text)
	}
	return commands
}

var hereDocument = regexp.MustCompile(`<<-?'?(\w+)'?`)

// complete reports whether a shell would run the text now instead of waiting for another line.
func complete(text string) bool {
	if found := hereDocument.FindStringSubmatch(text); found != nil {
		return strings.HasSuffix(text, "\n"+found[1])
	}
	return !strings.HasSuffix(text, `\`) && !strings.HasSuffix(text, "|") && strings.Count(text, "'")%2 == 0
}

// needsOuter reports whether only the outer ring can run a command: it runs one of outerTools, itself or through cvo.
func (c typed) needsOuter() bool {
	return slices.ContainsFunc(simple(c.text), func(words []string) bool {
		return slices.Contains(outerTools, filepath.Base(words[0])) || slices.Contains(words, "--from-helm") || slices.Contains(words, "--from-kustomize")
	})
}

func TestCommandsThatNeedTheOuterRing(t *testing.T) {
	t.Parallel()
	for command, needs := range map[string]bool{
		"cvo upgrade": false,
		"sed -n '/^kubectl/,$p' mirror.txt > sets.yaml":                   false,
		"cvo status # as kubectl shows it":                                false,
		"kubectl cvo upgrade":                                             true,
		"cvo release rbac ./release | kubectl apply -f -":                 true,
		"cvo status -o json | jq .":                                       true,
		`for f in ./install/*.yaml; do kubectl apply -f "$f"; done`:       true,
		"KUBECONFIG=other kubectl get pods":                               true,
		"cvo install --token \"$(kubectl create token vera)\"":            true,
		"kubectl apply -f - <<EOF\nkind: ConfigMap\nEOF":                  true,
		"cvo release new --from-helm ./web --name 1.0.0 --to-oci release": true,
		"make chart": true,
	} {
		assert.Equal(t, needs, typed{text: command}.needsOuter(), command)
	}
}

// simple splits a command line into its simple commands, as a shell does. Each is a list of words. A substitution stays in its word and is
// also returned as separate commands.
func simple(text string) (commands [][]string) {
	if found := hereDocument.FindStringIndex(text); found != nil {
		text = text[:found[0]] + strings.TrimLeft(text[found[1]:], " \n")
		text, _, _ = strings.Cut(text, "\n")
	}
	var (
		words []string
		next  strings.Builder
		quote rune
		some  bool
	)
	endWord := func() {
		if some {
			words = append(words, next.String())
		}
		next.Reset()
		some = false
	}
	endCommand := func() {
		endWord()
		commands = append(commands, words)
		words = nil
	}
	runes := []rune(text)
	for i := 0; i < len(runes); i++ {
		r := runes[i]
		switch {
		case r == '$' && i+1 < len(runes) && runes[i+1] == '(' && quote != '\'':
			inner := closing(string(runes[i+2:]))
			commands = append(commands, simple(inner)...)
			next.WriteString("SUBSTITUTED")
			some = true
			i += 2 + len([]rune(inner))
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, some = r, true
		case quote != 0:
			next.WriteRune(r)
		case r == '\\' && i+1 < len(runes) && runes[i+1] == '\n':
			endWord()
			i++
		case r == '#' && !some:
			for i+1 < len(runes) && runes[i+1] != '\n' {
				i++
			}
		case r == '|' || r == ';' || r == '&' || r == '\n':
			endCommand()
		case r == ' ':
			endWord()
		default:
			next.WriteRune(r)
			some = true
		}
	}
	endCommand()
	for i := range commands {
		commands[i] = bare(commands[i])
	}
	return slices.DeleteFunc(commands, func(words []string) bool { return len(words) == 0 })
}

// closing returns the text before the closing bracket of the enclosing pair.
func closing(text string) string {
	depth := 1
	for i, r := range text {
		switch r {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return text[:i]
			}
		}
	}
	return text
}

var (
	assignment  = regexp.MustCompile(`^[A-Z0-9_]+=`)
	redirection = regexp.MustCompile(`^[012]?[<>]`)
)

// bare removes the shell's own words, assignments before the command, and redirections.
func bare(words []string) []string {
	var kept []string
	for i := 0; i < len(words); i++ {
		switch w := words[i]; {
		case len(kept) == 0 && (w == "do" || w == "then" || w == "!" || assignment.MatchString(w)):
		case len(kept) == 0 && (w == "for" || w == "done" || w == "fi" || w == "if"):
			return nil
		case redirection.MatchString(w):
			if strings.TrimLeft(w, "012<>&") == "" && !strings.Contains(w, "&") {
				i++ // the next word is the file's name
			}
		default:
			kept = append(kept, w)
		}
	}
	return kept
}

// TestDocumentedCommandsParse checks that each program accepts its commands in the documentation: the command exists, with these flags and
// this number of arguments. It executes nothing, so pages may have … instead of a reader's value. The programs are cvo, make, and in the
// outer ring kubectl. The test logs all other commands.
func TestDocumentedCommandsParse(t *testing.T) {
	t.Parallel()
	targets := makeTargets(t)
	counted, others := map[string]int{}, map[string]bool{}
	for _, page := range commandPages(t) {
		for _, b := range readBlocks(t, page) {
			for _, c := range b.commands {
				for _, words := range simple(c.text) {
					program, args := filepath.Base(words[0]), words[1:]
					if program == "kubectl" && len(args) > 0 && args[0] == "cvo" {
						program, args = "cvo", args[1:]
					}
					counted[program]++
					var err error
					switch program {
					case "cvo":
						err = parsedByCVO(args)
					case "kubectl":
						err = parsedByKubectl(t, args)
					case "make":
						for _, arg := range args {
							if !strings.Contains(arg, "=") && !strings.HasPrefix(arg, "-") && !targets[arg] {
								err = errors.New("the Makefile has no target " + arg)
							}
						}
					default:
						others[program] = true
					}
					require.NoError(t, err, "%s:%d: %s", page, c.line, strings.Join(words, " "))
				}
			}
		}
	}
	t.Logf("parsed: %d of cvo, %d of kubectl, %d of make; read only: %v", counted["cvo"], counted["kubectl"], counted["make"],
		slices.Sorted(maps.Keys(others)))
	require.Greater(t, counted["cvo"], 60)
	require.Greater(t, counted["kubectl"], 25)
	require.Greater(t, counted["make"], 10)
}

// parsedByCVO parses a command line without running the command.
func parsedByCVO(args []string) error {
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "…" })
	rootCmd := cli.New(command.Streams{In: &bytes.Buffer{}, Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
	rootCmd.InitDefaultHelpCmd()
	rootCmd.InitDefaultCompletionCmd(args...)
	cmd, rest, err := rootCmd.Find(args)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	if err := cmd.ParseFlags(rest); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return err
	}
	if cmd.HasSubCommands() && !cmd.Runnable() {
		return errors.New("this command needs a subcommand")
	}
	if err := cmd.ValidateRequiredFlags(); err != nil && !slices.Contains(args, "--rules") {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// parsedByKubectl lets kubectl parse the flags and print its help. It checks neither the arguments nor the kind of
// resource. `make test` does not run kubectl.
func parsedByKubectl(t *testing.T, args []string) error {
	t.Helper()
	if !ring.Outer() {
		return nil
	}
	kubectl, err := env.Tool("kubectl")
	require.NoError(t, err)
	if at := slices.Index(args, "--"); at >= 0 {
		args = args[:at]
	}
	cmd := exec.CommandContext(t.Context(), kubectl, append(slices.Clone(args), "--help")...)
	cmd.Env = append(os.Environ(), "KUBECONFIG=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.New(strings.TrimSpace(string(out)))
	}
	if len(args) > 0 && !strings.Contains(string(out), "kubectl "+args[0]) && !strings.HasPrefix(args[0], "-") {
		return errors.New("kubectl has no command " + args[0])
	}
	return nil
}

func makeTargets(t *testing.T) map[string]bool {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	targets := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllSubmatch(makefile, -1) {
		targets[string(found[1])] = true
	}
	return targets
}
