// Command kube is every Kubernetes role in one binary. The role is the name it is called by (a
// symlink such as kubectl) or else its first argument: kube apiserver --etcd-servers=...
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// command builds the command tree of one role, or nil if there is no such role.
func command(role string) *cobra.Command {
	switch role {
	case "apiserver":
		return apiserver.NewAPIServerCommand()
	case "controller-manager":
		return manager.NewControllerManagerCommand()
	case "scheduler":
		return scheduler.NewSchedulerCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	case "proxy":
		return proxy.NewProxyCommand()
	case "kubectl":
		return kubectl.NewDefaultKubectlCommand()
	}
	return nil
}

func main() {
	role := command(filepath.Base(os.Args[0]))
	if role == nil && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		role = command(os.Args[0])
	}
	if role == nil {
		fmt.Fprintln(os.Stderr, "kube: name a role: apiserver, controller-manager, scheduler, kubelet, proxy, kubectl")
		os.Exit(2)
	}
	os.Exit(cli.Run(role))
}
