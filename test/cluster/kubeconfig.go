package cluster

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes the admin's access to the server. It holds the
// certificates themselves, so that it may be copied.
func (s *Server) writeKubeconfig() error {
	config := clientcmdapi.NewConfig()
	config.Clusters[s.name] = &clientcmdapi.Cluster{
		Server:                   s.URL(),
		CertificateAuthorityData: s.admin.CAData,
	}
	config.AuthInfos[adminUser] = &clientcmdapi.AuthInfo{
		ClientCertificateData: s.admin.CertData,
		ClientKeyData:         s.admin.KeyData,
	}
	config.Contexts[s.name] = &clientcmdapi.Context{Cluster: s.name, AuthInfo: adminUser}
	config.CurrentContext = s.name
	if err := clientcmd.WriteToFile(*config, s.Kubeconfig()); err != nil {
		return fmt.Errorf("writing the kubeconfig of server %s: %w", s.name, err)
	}
	return nil
}
