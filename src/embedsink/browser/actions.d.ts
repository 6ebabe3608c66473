export type Json = string | number | boolean | null | Json[] | {
    [name: string]: Json;
};
/** Values by `<semantic view>.<dimension>`. A name contains no space and none of `= & ? # + %`. */
export type Filters = Record<`${string}.${string}`, Json>;
/** The common fields of a brand theme. The vendor may support more. */
export interface Theme {
    primaryColor?: unknown;
    borderRadius?: unknown;
    font?: unknown;
    [field: string]: unknown;
}
/** The six actions of spec 6.5 and their payloads. */
export interface Actions {
    "set-color-scheme": {
        scheme: "light" | "dark" | "auto";
    };
    "set-theme": Theme | {
        embedTheme: Theme;
    };
    "set-locale": {
        locale: string;
    };
    /** An object of filters is posted as one action for each filter. */
    "set-filter": Filters | {
        filterUrlParameter: string;
    };
    navigate: {
        path: string;
    };
    refresh: Record<string, never> | undefined;
}
export interface Embed {
    /** An `http` or `https` URL, such as `https://tenant.example.com`, with the parent path of the embeds if they have one. */
    base: string;
    publicId: string;
    /** The session from the session-generation API. It is a credential: never log the URL. */
    session: string;
    /** Show the CSV download on widgets. */
    allowExport?: boolean;
    filters?: Filters;
}
/**
 * Post an action to an embed. Only a page of this origin receives it.
 *
 * Throws a TypeError for an invalid origin (such as `*`), an unknown action, a filter without a value, and an iframe that is
 * not in a page.
 */
export declare const send: <Name extends keyof Actions>(iframe: HTMLIFrameElement, origin: string, name: Name, ...[payload, { serviceName }]: undefined extends Actions[Name] ? [payload?: Actions[Name], options?: {
    serviceName?: string;
}] : [payload: Actions[Name], options?: {
    serviceName?: string;
}]) => void;
/** Return the URL of a signed dashboard embed. Throws a TypeError if a part is missing or would change the URL's structure. */
export declare const embedUrl: ({ base, publicId, session, allowExport, filters }: Embed) => string;
