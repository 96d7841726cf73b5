package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// ErrKilled tells that a process was killed, because it had not ended by itself.
var ErrKilled = errors.New("killed, because it had not ended")

// process is a running program that dies with this one.
type process struct {
	pid  int
	os   *os.Process
	done chan struct{} // closed when it has ended
	err  error         // how it ended; read after done
	log  string
	from int64 // where its own output begins in log
}

// startProcess runs a program with its output appended to the file log. With a
// host name it runs under that name, in a UTS namespace of its own.
func startProcess(log, hostname, path string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	info, err := out.Stat()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = sysProcAttr()
	p := &process{done: make(chan struct{}), log: log, from: info.Size()}
	started := make(chan error)
	go p.run(cmd, hostname, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run starts the command and waits for it on one thread. The kernel sends the
// parent-death signal when the thread that forked ends, and the host name
// belongs to that thread: so it is locked, and never unlocked, which ends it
// together with this goroutine.
func (p *process) run(cmd *exec.Cmd, hostname string, started chan<- error) {
	runtime.LockOSThread()
	defer close(p.done)
	if hostname != "" {
		if err := setHostname(hostname); err != nil {
			started <- err
			return
		}
	}
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid, p.os = cmd.Process.Pid, cmd.Process
	started <- nil
	p.err = cmd.Wait()
}

// running reports whether the process has not ended yet.
func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends a signal; to a process that has ended that is no error.
func (p *process) signal(s os.Signal) error {
	if err := p.os.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %v to process %d: %w", s, p.pid, err)
	}
	return nil
}

// stop asks the process to end and waits for it, and returns how long that
// took. When the context ends first, the process is killed and the error says
// so. A frozen process is thawed.
func (p *process) stop(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	if err := errors.Join(p.signal(syscall.SIGTERM), p.signal(syscall.SIGCONT)); err != nil {
		return 0, err
	}
	select {
	case <-p.done:
		return since(began), nil
	case <-ctx.Done():
		return since(began), errors.Join(fmt.Errorf("%w, %s after SIGTERM", ErrKilled, since(began)), p.kill())
	}
}

// kill ends the process at once and waits until it is gone.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// ending tells how a process that has ended did so, and the end of its log.
func (p *process) ending() string {
	how := "with success"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Sprintf("it ended (%s); the end of %s:\n%s", how, p.log, p.tail())
}

const tailLines, tailBytes = 12, 64 << 10

// tail returns the last lines of what the process wrote. A program that fails
// over its flags or dies of a panic writes much more after the line that says
// why: where there are lines of errors, they are preferred.
func (p *process) tail() string {
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	from := max(p.from, info.Size()-tailBytes)
	content := make([]byte, info.Size()-from)
	n, _ := f.ReadAt(content, from)
	return lastLines(string(content[:n]))
}

func lastLines(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	var errorLines []string
	for _, line := range lines {
		if isErrorLine(line) {
			errorLines = append(errorLines, line)
		}
	}
	if len(errorLines) > 0 {
		lines = errorLines
	}
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}

// isErrorLine knows klog's errors (E0131, F0131), the command line's and the
// runtime's.
func isErrorLine(line string) bool {
	if strings.HasPrefix(line, "Error: ") || strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
		return true
	}
	return len(line) > 1 && (line[0] == 'E' || line[0] == 'F') && line[1] >= '0' && line[1] <= '9'
}
