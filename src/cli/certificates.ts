import { unwatchFile, watchFile } from 'node:fs';

/**
 * Calls `changed` soon after one of the files was replaced. Looks at them once a second rather than asking the kernel to
 * tell, because renewal swaps symbolic links, which watchers of the kernel do not follow.
 */
export function watchCertificates(files: readonly string[], changed: () => void): () => void {
  for (const file of files) watchFile(file, { interval: 1000, persistent: false }, changed);
  return () => {
    for (const file of files) unwatchFile(file, changed);
  };
}
