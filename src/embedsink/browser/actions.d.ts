export type Json = string | number | boolean | null | Json[] | { [name: string]: Json };

/** Values by `<semantic view>.<dimension>`; a name has none of `= & ? # + %` and no space in it. */
export type Filters = Record<`${string}.${string}`, Json>;

/** The common fields of a brand theme; the vendor may know more. */
export interface Theme {
  primaryColor?: unknown;
  borderRadius?: unknown;
  font?: unknown;
  [field: string]: unknown;
}

/** The six actions of spec 6.5 and their payloads. */
export interface Actions {
  "set-color-scheme": { scheme: "light" | "dark" | "auto" };
  "set-theme": Theme | { embedTheme: Theme };
  "set-locale": { locale: string };
  /** An object becomes one action for each of its filters. */
  "set-filter": Filters | { filterUrlParameter: string };
  navigate: { path: string };
  refresh: Record<string, never> | undefined;
}

/**
 * Post an action to an embed, for this origin's eyes only.
 *
 * Throws a TypeError for an origin that is none (so for `*`), a name that is no action's, a filter without a value, and an
 * iframe that is in no page.
 */
export function send<Name extends keyof Actions>(
  iframe: HTMLIFrameElement,
  origin: string,
  name: Name,
  ...payload: undefined extends Actions[Name]
    ? [payload?: Actions[Name], options?: { serviceName?: string }]
    : [payload: Actions[Name], options?: { serviceName?: string }]
): void;

export interface Embed {
  /** As in `https://tenant.example.com`: `http` or `https`, with the path below which the embeds are, if there is one. */
  base: string;
  publicId: string;
  /** From the session-generation API. It is a credential: never log the address. */
  session: string;
  /** Show the CSV download on widgets. */
  allowExport?: boolean;
  filters?: Filters;
}

/** The address of a signed dashboard embed. Throws a TypeError when a part of it is missing or would make another address. */
export function embedUrl(embed: Embed): string;
