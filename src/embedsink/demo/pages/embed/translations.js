// The embed's texts in three languages. Other languages fall back to English.

// The order of each text's translations.
const LANGUAGES = ["en", "de", "fr"];

const WORDS = {
  orders: ["Orders", "Bestellungen", "Commandes"],
  deliveries: ["Deliveries", "Lieferungen", "Livraisons"],
  revenue: ["Revenue", "Umsatz", "Chiffre d’affaires"],
  ordersCount: ["Orders", "Bestellungen", "Commandes"],
  basket: ["Average order", "Ø Bestellung", "Panier moyen"],
  late: ["Late deliveries", "Verspätet", "En retard"],
  onTime: ["On time", "Pünktlich", "À l’heure"],
  revenueByMonth: ["Revenue by month", "Umsatz nach Monat", "Chiffre d’affaires par mois"],
  revenueByRegion: ["Revenue by region", "Umsatz nach Region", "Chiffre d’affaires par région"],
  ordersByProduct: ["Orders by product", "Bestellungen nach Produkt", "Commandes par produit"],
  lateByMonth: ["Late deliveries by month", "Verspätete Lieferungen nach Monat", "Livraisons en retard par mois"],
  lateByRegion: ["Late deliveries by region", "Verspätete Lieferungen nach Region", "Livraisons en retard par région"],
  lateByProduct: [
    "Late deliveries by product",
    "Verspätete Lieferungen nach Produkt",
    "Livraisons en retard par produit",
  ],
  by: [
    { "orders.region": "by region", "orders.product": "by product", "orders.month": "by month" },
    { "orders.region": "nach Region", "orders.product": "nach Produkt", "orders.month": "nach Monat" },
    { "orders.region": "par région", "orders.product": "par produit", "orders.month": "par mois" },
  ],
  back: ["Back", "Zurück", "Retour"],
  csv: ["CSV", "CSV", "CSV"],
  saveCsv: ["Save as CSV:", "Als CSV speichern:", "Enregistrer en CSV :"],
  region: ["Region", "Region", "Région"],
  product: ["Product", "Produkt", "Produit"],
  home: ["Home", "Start", "Accueil"],
  workbook: ["Quarterly planning", "Quartalsplanung", "Plan trimestriel"],
  shared: ["Shared with me", "Mit mir geteilt", "Partagé avec moi"],
  greeting: ["Welcome back, Marta", "Willkommen zurück, Marta", "Bon retour, Marta"],
  recent: ["Recently opened", "Zuletzt geöffnet", "Ouverts récemment"],
  edited: ["edited yesterday", "gestern bearbeitet", "modifié hier"],
  sharedBy: ["shared by Jonas", "geteilt von Jonas", "partagé par Jonas"],
  quarter: ["Quarter", "Quartal", "Trimestre"],
  plan: ["Plan", "Plan", "Prévu"],
  actual: ["Actual", "Ist", "Réel"],
  ask: [
    "Ask a question about your data",
    "Stellen Sie eine Frage zu Ihren Daten",
    "Posez une question sur vos données",
  ],
  send: ["Ask", "Fragen", "Demander"],
  thinking: ["Thinking", "Denkt nach", "Réflexion"],
  failed: [
    "I could not answer this: the query timed out.",
    "Keine Antwort möglich: Die Abfrage hat das Zeitlimit überschritten.",
    "Impossible de répondre : la requête a expiré.",
  ],
  chat: ["Ask your data", "Fragen Sie Ihre Daten", "Interrogez vos données"],
  intro: [
    "Ask in your own words, or try one of these. Each has a different outcome.",
    "Stellen Sie eine eigene Frage oder wählen Sie ein Beispiel. Jedes endet anders.",
    "Posez votre question ou essayez un exemple. Chacun a une issue différente.",
  ],
  answers: ["answered", "beantwortet", "répondue"],
  fails: ["fails", "schlägt fehl", "échoue"],
  hangs: ["no answer", "keine Antwort", "sans réponse"],
  best: ["Which region grew most?", "Welche Region ist am stärksten gewachsen?", "Quelle région a le plus progressé ?"],
  forecast: ["Forecast next year", "Prognose für nächstes Jahr", "Prévoir l’an prochain"],
  every: ["Compare all orders", "Alle Bestellungen vergleichen", "Comparer toutes les commandes"],
  answer: [
    (region, share) => `${region}: revenue is up ${share} on the first half of the period.`,
    (region, share) => `${region}: Der Umsatz liegt dort ${share} über der ersten Hälfte des Zeitraums.`,
    (region, share) => `${region} : le chiffre d’affaires y dépasse de ${share} la première moitié de la période.`,
  ],
  generic: [
    (sum) => `Revenue in the last twelve months was ${sum}.`,
    (sum) => `In den letzten zwölf Monaten betrug der Umsatz ${sum}.`,
    (sum) => `Sur douze mois, le chiffre d’affaires atteint ${sum}.`,
  ],
  simulate: ["Simulate", "Simulieren", "Simuler"],
  timeout: ["Query timeout", "Zeitüberschreitung", "Délai dépassé"],
  expire: ["Expired session", "Abgelaufene Sitzung", "Session expirée"],
  unknown: ["Unknown event type", "Unbekannter Ereignistyp", "Type d’événement inconnu"],
  timedOut: ["The query timed out.", "Die Abfrage hat das Zeitlimit überschritten.", "La requête a expiré."],
  retry: ["Try again", "Erneut versuchen", "Réessayer"],
  expired: ["Your session has expired.", "Ihre Sitzung ist abgelaufen.", "Votre session a expiré."],
  reload: ["Sign in again", "Neu anmelden", "Se reconnecter"],
  notFound: ["This page does not exist.", "Diese Seite existiert nicht.", "Cette page n’existe pas."],
  alone: [
    "This page works only inside another page.",
    "Diese Seite funktioniert nur innerhalb einer anderen Seite.",
    "Cette page ne fonctionne que dans une autre page.",
  ],
  byVendor: [
    "Charts by Marl, a fictional vendor",
    "Diagramme von Marl, einem fiktiven Anbieter",
    "Graphiques par Marl, fournisseur fictif",
  ],
};

/** Returns the texts and formats of a locale: a full code, a short one or a regional variant (spec 6.5). */
export function translate(code) {
  const locale = canonical(code);
  const language = new Intl.Locale(locale).language;
  const isSupported = LANGUAGES.includes(language);
  const supported = isSupported ? locale : "en";
  const index = isSupported ? LANGUAGES.indexOf(language) : 0;
  return {
    ...Object.fromEntries(Object.entries(WORDS).map(([name, texts]) => [name, texts[index]])),
    locale: supported,
    money: (value) =>
      new Intl.NumberFormat(supported, { style: "currency", currency: "EUR", maximumFractionDigits: 0 }).format(value),
    price: (value) => new Intl.NumberFormat(supported, { style: "currency", currency: "EUR" }).format(value),
    short: (value) => new Intl.NumberFormat(supported, { notation: "compact", maximumFractionDigits: 0 }).format(value),
    number: (value) => new Intl.NumberFormat(supported).format(value),
    share: (value) => new Intl.NumberFormat(supported, { style: "percent", maximumFractionDigits: 1 }).format(value),
    month: (value) => new Intl.DateTimeFormat(supported, { month: "short", timeZone: "UTC" }).format(new Date(value)),
  };
}

function canonical(code) {
  try {
    return Intl.getCanonicalLocales(code)[0] ?? "en";
  } catch {
    return "en"; // not a language tag
  }
}
