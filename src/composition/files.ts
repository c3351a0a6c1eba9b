import { existsSync, readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import { errorText } from '../base/errors.ts';
import { ConfigError } from '../config.ts';
import { isMongoUrl, MONGO_URL, type Settings } from '../settings.ts';

/** Reads all files named in the settings. Throws one `ConfigError` for all that cannot be used. */
export function checkFiles({ smtp, store, acme }: Settings): void {
  const reads = [
    { files: [smtp.tls.cert, smtp.tls.key], read: () => readTls(smtp.tls) },
    { files: [store.url_file], read: () => readStoreUrl(store) },
    { files: [acme.ca_file], read: () => readRoots(acme) },
  ];
  const faults = reads
    .filter(({ files }) => !files.some(comesLater))
    .flatMap(({ read }) => {
      try {
        read();
        return [];
      } catch (error) {
        if (error instanceof ConfigError) return error.faults;
        throw error;
      }
    });
  if (faults.length > 0) throw new ConfigError(faults);
}

/** Reserved names (RFC 2606, RFC 6761), which are not reachable from other hosts. */
const PLACEHOLDER = /(?:^|\.)(?:example\.(?:com|net|org)|example|invalid)$/;

/** Whether a name is an example. */
export const isPlaceholder = (name: string): boolean => PLACEHOLDER.test(name.toLowerCase());

/** Throws `ConfigError` if a public name of this host is still a placeholder. */
export function checkNames({ hostname, public_url: publicUrl }: Pick<Settings, 'hostname' | 'public_url'>): void {
  const names = [
    { path: 'hostname', name: hostname },
    { path: 'public_url', name: new URL(publicUrl).hostname },
  ];
  const faults = names
    .filter(({ name }) => isPlaceholder(name))
    .map(({ path, name }) => ({ path, text: `${name} is a placeholder; set the real name of this host` }));
  if (faults.length > 0) throw new ConfigError(faults);
}

/** systemd credentials exist only while the service runs, and only for its user. */
function comesLater(file: string): boolean {
  return file.startsWith('/run/credentials/') && !existsSync(file);
}

/** Returns the certificate and its key; undefined if none is set. Throws `ConfigError`. */
export function readTls({ cert: certFile, key: keyFile, min_version: minVersion }: Settings['smtp']['tls']) {
  if (certFile === '') return undefined;
  const [cert, key] = [readNamed('smtp.tls.cert', certFile), readNamed('smtp.tls.key', keyFile)];
  mustServe('smtp.tls.cert', `${certFile} is not a PEM certificate`, { cert });
  mustServe('smtp.tls.key', `${keyFile} is not a PEM private key, or has a passphrase`, { key });
  mustServe('smtp.tls', `${keyFile} is not the key of ${certFile}`, { cert, key });
  return { cert, key, minVersion };
}

/** Returns the root certificates for the ACME authority; undefined: those of Node. Throws `ConfigError`. */
export function readRoots({ ca_file: file }: Pick<Settings['acme'], 'ca_file'>): string | undefined {
  if (file === '') return undefined;
  const ca = readNamed('acme.ca_file', file);
  if (!ca.includes('-----BEGIN CERTIFICATE-----')) throw fault('acme.ca_file', `${file} has no PEM certificate`);
  return ca;
}

/** Returns the URL of the database; empty for the embedded store. Throws `ConfigError`. */
export function readStoreUrl({ url, url_file: file }: Settings['store']): string {
  if (file === '') return url;
  const named = readNamed('store.url_file', file).trim();
  // An empty file must not select the embedded store: it has no domains, so all mail would be permanently rejected.
  if (!isMongoUrl(named)) throw fault('store.url_file', `${file} must contain a URL: ${MONGO_URL}`);
  return named;
}

function readNamed(path: string, file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (comesLater(file))
      throw fault(
        path,
        `${file} exists only while the service runs: start it, or name a copy of the file that the user postern can ` +
          'read (see "While the service is stopped" in docs/operations.md)',
      );
    throw fault(path, errorText(error));
  }
}

function mustServe(path: string, text: string, pair: { readonly cert?: string; readonly key?: string }): void {
  try {
    createSecureContext(pair);
  } catch (error) {
    throw fault(path, `${text} (${errorText(error)})`);
  }
}

const fault = (path: string, text: string) => new ConfigError([{ path, text }]);
