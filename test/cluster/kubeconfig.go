package cluster

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes the admin's access to what serves at url, a server or
// what stands before several, under a name to file. It holds the certificates
// themselves, so that it may be copied.
func (c *Cluster) writeKubeconfig(file, name, url string) error {
	admin, err := c.userCert(adminUser, []string{adminGroup})
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   url,
		CertificateAuthorityData: c.CA.PEM(),
	}
	config.AuthInfos[adminUser] = &clientcmdapi.AuthInfo{
		ClientCertificateData: admin.Cert,
		ClientKeyData:         admin.Key,
	}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: adminUser}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", name, err)
	}
	return nil
}
