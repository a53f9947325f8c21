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
)

// block is a fenced block of a page with what somebody types: lines that begin with a dollar, and what is printed then.
type block struct {
	page string
	line int
	// notRun is why the block is not run by a walk, from the HTML comment before it.
	notRun string
	// notCompared is why the page shows something else than the walk's release gives, from such a comment as well.
	notCompared string
	commands    []typed
}

// typed is one command with the lines that belong to it, and what the page says that it prints.
type typed struct {
	line   int
	text   string
	output []string
}

// marker excuses a block from being run, or what it shows from being compared, with a reason.
var marker = regexp.MustCompile(`^<!-- not (run|compared): (.+) -->$`)

// commandPages are those whose commands are for readers to type.
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

// readBlocks finds the blocks of a page.
func readBlocks(t *testing.T, page string) []block {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	lines := strings.Split(string(data), "\n")
	var blocks []block
	for i := 0; i < len(lines); i++ {
		language, fenced := strings.CutPrefix(strings.TrimSpace(lines[i]), "```")
		if !fenced {
			assert.NotRegexp(t, `^    (\$ |(cvo|kubectl|make|bin/cvo) [a-z-])`, lines[i], "%s:%d: a command outside a ```console block", page, i+1)
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
			continue // output of something that was typed before
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

// complete tells whether a shell would begin to work now, or wait for another line.
func complete(text string) bool {
	if found := hereDocument.FindStringSubmatch(text); found != nil {
		return strings.HasSuffix(text, "\n"+found[1])
	}
	return !strings.HasSuffix(text, `\`) && !strings.HasSuffix(text, "|") && strings.Count(text, "'")%2 == 0
}

// simple splits what was typed into its simple commands, each a list of words, the way a shell does. Substitutions stay
// within their word, and are answered as commands of their own.
func simple(text string) (commands [][]string) {
	if found := hereDocument.FindStringIndex(text); found != nil {
		text = text[:found[0]] + strings.TrimLeft(text[found[1]:], " \n")
		text, _, _ = strings.Cut(text, "\n")
	}
	var (
		words []string
		word  strings.Builder
		quote rune
		some  bool
	)
	endWord := func() {
		if some {
			words = append(words, word.String())
		}
		word.Reset()
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
			word.WriteString("SUBSTITUTED")
			some = true
			i += 2 + len([]rune(inner))
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, some = r, true
		case quote != 0:
			word.WriteRune(r)
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
			word.WriteRune(r)
			some = true
		}
	}
	endCommand()
	for i := range commands {
		commands[i] = bare(commands[i])
	}
	return slices.DeleteFunc(commands, func(words []string) bool { return len(words) == 0 })
}

// closing is the text before the bracket that closes what the text is within.
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

// bare leaves out the shell's own words, assignments before the command, and redirections.
func bare(words []string) []string {
	var kept []string
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case len(kept) == 0 && (word == "do" || word == "then" || word == "!" || assignment.MatchString(word)):
		case len(kept) == 0 && (word == "for" || word == "done" || word == "fi" || word == "if"):
			return nil
		case redirection.MatchString(word):
			if strings.TrimLeft(word, "012<>&") == "" && !strings.Contains(word, "&") {
				i++ // the file's name is the next word
			}
		default:
			kept = append(kept, word)
		}
	}
	return kept
}

// TestCommandsParse checks that every command of the documentation is one that its program understands: that there is such
// a command, with such flags and that many arguments. Nothing is executed here, so pages may say … where their reader has
// something of his own. The programs are cvo, kubectl and make; what else is typed is listed by the test, and only read.
func TestCommandsParse(t *testing.T) {
	t.Parallel()
	kubectl := kubectlPath(t)
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
						err = parsedByKubectl(t, kubectl, args)
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

// parsedByCVO takes a command line as far as it goes without doing what it says.
func parsedByCVO(args []string) error {
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "…" })
	rootCmd := cli.New(cli.Streams{In: &bytes.Buffer{}, Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
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
		return errors.New("this takes a subcommand")
	}
	if err := cmd.ValidateRequiredFlags(); err != nil && !slices.Contains(args, "--rules") {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// parsedByKubectl has kubectl read the flags and then print its help instead of doing anything. It does not check arguments
// there, nor whether there is such a kind.
func parsedByKubectl(t *testing.T, kubectl string, args []string) error {
	t.Helper()
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

// kubectlPath is the kubectl that make kube-tools builds.
func kubectlPath(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("CVO_KUBE_BIN")
	if dir == "" {
		dir = filepath.Join(root, "bin", "kube")
	}
	path, err := filepath.Abs(filepath.Join(dir, "kubectl"))
	require.NoError(t, err)
	require.FileExists(t, path, "run make kube-tools")
	return path
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
