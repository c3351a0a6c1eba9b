import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { extname, join, posix, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { brotliCompress, gzip } from 'node:zlib';
import type { Context } from 'koa';
import { frozen } from '../base/frozen.ts';
import { minifyModule } from './minify.ts';

// The page of the console and its files. There is no build step: a browser gets the modules of web/ one by one,
// without their types. They are read once, so that one page never mixes the files of two versions.

/** A file of the page. */
interface Asset {
  readonly type: string;
  /** As sent, without encoding. */
  text(): string;
}

const TYPES: Readonly<Record<string, string>> = {
  '.ts': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml; charset=utf-8',
};

/** Modules that web/ imports by name, and their files in node_modules. */
const LIBRARIES = {
  preact: 'preact',
  'preact/hooks': 'preact/hooks',
  '@preact/signals': '@preact/signals',
  '@preact/signals-core': '@preact/signals-core',
  uplot: 'uplot/dist/uPlot.iife.min.js',
} as const;
/** The minified file of uPlot is a classic script that declares a variable; this makes it a module. */
const SUFFIXES: Readonly<Record<string, string>> = { uplot: '\nexport default uPlot;\n' };
/** Loaded only by the screens that plot. */
const LATER = 'uplot';

const ENTRY = 'main.ts';
/** The screen at /console/. The others are named by the first segment of their path. */
const START = 'screens/now.ts';
const WEB = fileURLToPath(new URL('./web', import.meta.url));

/**
 * The page and its files, from the folder `dir`. Only `mailOrigin` may be shown in its frames; empty: its own origin.
 */
export function createAssets(mailOrigin: string, dir: string = WEB) {
  let read: ReturnType<typeof readAssets> | undefined;
  const packed = new Map<string, Promise<Buffer>>();
  const assets = () => (read ??= readAssets(mailOrigin, dir));

  /** Sends a text in the best encoding; each is compressed once. */
  async function send(ctx: Context, key: string, { type, text }: Asset, etag: string, cache: string): Promise<void> {
    ctx.set({ 'Cache-Control': cache, ETag: etag, Vary: 'Accept-Encoding' });
    ctx.status = 200;
    if (ctx.fresh) {
      ctx.status = 304;
      return;
    }
    const encoding = ctx.acceptsEncodings('br', 'gzip', 'identity');
    const pack = encoding === 'br' ? brotli : encoding === 'gzip' ? zip : plain;
    const known = packed.get(`${encoding} ${key}`) ?? pack(text());
    packed.set(`${encoding} ${key}`, known);
    if (pack !== plain) ctx.set('Content-Encoding', String(encoding));
    ctx.set('Content-Type', type);
    ctx.body = await known;
  }

  return frozen({
    /** Sends the page of a path: without data, the same for everybody, and with the modules of its screen preloaded. */
    async page(ctx: Context): Promise<void> {
      const { page, policy, version, files } = assets();
      const named = `screens/${ctx.path.split('/')[2]}.ts`;
      const screen = files.has(named) ? named : START;
      ctx.set('Content-Security-Policy', policy);
      const asset = { type: 'text/html; charset=utf-8', text: () => page(screen) };
      await send(ctx, `page ${screen}`, asset, `"${version}"`, 'no-cache');
    },
    /** Sends a file by the rest of its path, `<version>/main.ts`. Returns whether there is one. */
    async file(ctx: Context, path: string): Promise<boolean> {
      const { version, files } = assets();
      const name = path.startsWith(`${version}/`) ? path.slice(version.length + 1) : '';
      const asset = files.get(name);
      if (asset) await send(ctx, name, asset, `"${version}"`, 'public, max-age=31536000, immutable');
      return asset !== undefined;
    },
  });
}

/** Reads all files that requests may name. */
function readAssets(mailOrigin: string, dir: string) {
  const files = new Map<string, Asset>();
  // The policy depends on it: the page must not count as unchanged after a change of this setting.
  const hash = createHash('sha256').update(`${mailOrigin}\0`);
  const add = (name: string, type: string, source: string, text: () => string) => {
    hash.update(`${name}\0${source}\0`);
    files.set(name, { type, text });
  };
  const imports = new Map<string, readonly string[]>();
  const names = readdirSync(dir, { recursive: true, encoding: 'utf8' })
    .map((name) => name.split(sep).join('/'))
    .filter((name) => TYPES[extname(name)] !== undefined && !name.endsWith('.d.ts'))
    .sort();
  for (const name of names) {
    const source = readFileSync(join(dir, name), 'utf8');
    imports.set(name, importsOf(name, source));
    const text = name.endsWith('.ts') ? () => minifyModule(stripTypeScriptTypes(source)) : () => source;
    add(name, TYPES[extname(name)] ?? '', source, text);
  }
  for (const [name, path] of Object.entries(LIBRARIES)) {
    const source = readLibrary(path) + (SUFFIXES[name] ?? '');
    add(libraryFile(name), TYPES['.ts'] ?? '', source, () => source);
  }
  const plotStyle = readLibrary('uplot/dist/uPlot.min.css');
  add(PLOT_STYLE, TYPES['.css'] ?? '', plotStyle, () => plotStyle);
  const version = hash.digest('base64url').slice(0, 16);
  const modulesOf = (screen: string) => withImports([ENTRY, screen], imports).filter((name) => files.has(name));
  return { version, files, ...makePage(version, mailOrigin, [...files.keys()], modulesOf) };
}

/** The static imports of a module, such as `screens/now.ts`. */
function importsOf(name: string, source: string): readonly string[] {
  return [...source.matchAll(/^import (?!type )[^;]*'(\.[^']+)';$/gm)].map(([, path = '']) =>
    posix.join(posix.dirname(name), path),
  );
}

/** Modules and all their imports, in the order in which they are needed. */
function withImports(names: readonly string[], imports: ReadonlyMap<string, readonly string[]>): readonly string[] {
  const all = new Set(names);
  for (const name of all) for (const one of imports.get(name) ?? []) all.add(one);
  return [...all];
}

const libraryFile = (name: string) => `lib/${name.replaceAll('@', '').replaceAll('/', '-')}.js`;
const PLOT_STYLE = 'lib/uplot.css';

function readLibrary(path: string): string {
  const source = readFileSync(fileURLToPath(import.meta.resolve(path)), 'utf8');
  return source.replace(/\n?\/\/# sourceMappingURL=.*\s*$/, '');
}

/**
 * The page of a screen, and the policy that allows it its own files and nothing else. The modules of other screens are
 * loaded later (web/main.ts).
 */
function makePage(
  version: string,
  mailOrigin: string,
  names: readonly string[],
  modulesOf: (screen: string) => readonly string[],
) {
  const url = (name: string) => `/console/assets/${version}/${name}`;
  const imports = Object.keys(LIBRARIES).map((name) => [name, url(libraryFile(name))] as const);
  const importMap = JSON.stringify({ imports: Object.fromEntries(imports) });
  const libraries = imports.filter(([name]) => name !== LATER).map(([, path]) => path);
  const styles = [PLOT_STYLE, ...names.filter((name) => name.endsWith('.css') && name !== PLOT_STYLE)].map(url);
  const icon = names.includes('icon.svg') ? [`<link rel="icon" type="image/svg+xml" href="${url('icon.svg')}">`] : [];
  const page = (screen: string) => `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Postern</title>
${[...styles.map((href) => `<link rel="stylesheet" href="${href}">`), ...icon].join('\n')}
<script type="importmap">${importMap}</script>
${[...libraries, ...modulesOf(screen).map(url)].map((href) => `<link rel="modulepreload" href="${href}">`).join('\n')}
<script type="module" src="${url(ENTRY)}"></script></head>
<body><div id="app"></div><noscript>The console needs JavaScript.</noscript></body></html>
`;
  const mapHash = createHash('sha256').update(importMap).digest('base64');
  const policy = [
    `default-src 'none'`,
    `script-src 'self' 'sha256-${mapHash}'`,
    `style-src 'self'`,
    `img-src 'self'`,
    `connect-src 'self'`,
    `frame-src ${mailOrigin || "'self'"}`,
    `base-uri 'none'`,
    `form-action 'none'`,
    `frame-ancestors 'none'`,
    `require-trusted-types-for 'script'`,
    `trusted-types 'none'`,
  ].join('; ');
  return { page, policy };
}

const brotli = promisify<string, Buffer>(brotliCompress);
const zip = promisify<string, Buffer>(gzip);
const plain = async (text: string) => Buffer.from(text);
